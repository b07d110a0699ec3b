"""`override_transformer_config`: a name that Megatron does not know ends the run, late."""

import ast
import difflib
import importlib.util
import os
from collections.abc import Iterator

from omegaconf import DictConfig

from verl_msgrpo.preflight.megatron_fields import FIELDS, SOURCE
from verl_msgrpo.preflight.problems import WARNING, Problem
from verl_msgrpo.preflight.run import ACTOR, MEGATRON, Run
from verl_msgrpo.preflight.settings import text, value

CHECK = "megatron"
# Where the fields stand; read as text, since importing Megatron may need a GPU.
_SOURCES = (
    ("megatron.core", "model_parallel_config.py"),
    ("megatron.core", "transformer/transformer_config.py"),
    ("megatron.bridge", "models/gpt_provider.py"),
)


def check_megatron_options(run: Run) -> Iterator[Problem]:
    """Fields of the transformer, the bridge, and the dtype."""
    if not run.is_megatron:
        return
    known, source = known_fields()
    key = f"{MEGATRON}.override_transformer_config"
    options = value(run.config, key)
    names = [str(name) for name in options] if isinstance(options, DictConfig) else []
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, sorted(known), n=1)
            plus = "" if nearest and nearest[0] in names else "+"
            given = value(run.config, f"{key}.{name}")
            fix = f"{plus}{key}.{nearest[0]}={given}" if nearest else f"remove {key}.{name}"
            yield Problem(CHECK, f"{key}.{name} is no field of {source}", fix)
    if value(run.config, f"{MEGATRON}.use_mbridge") is not True:
        message = "verl's Megatron engine reads Hugging Face weights through the bridge only"
        yield Problem(CHECK, message, f"{MEGATRON}.use_mbridge=True")
    if value(run.config, f"{MEGATRON}.vanilla_mbridge") is True:
        message = "vanilla_mbridge is deprecated in verl 0.9 and will be removed"
        yield Problem(CHECK, message, f"{MEGATRON}.vanilla_mbridge=False", WARNING)
    if text(run.config, f"{MEGATRON}.dtype") not in ("bfloat16", "float16"):
        message = f"{MEGATRON}.dtype: bfloat16 or float16"
        yield Problem(CHECK, message, f"{MEGATRON}.dtype=bfloat16")
    if value(run.config, f"{ACTOR}.megatron.use_dist_checkpointing") is True and not text(
        run.config, f"{MEGATRON}.dist_checkpointing_path"
    ):
        message = "use_dist_checkpointing loads the weights from dist_checkpointing_path: not set"
        yield Problem(CHECK, message, f"{MEGATRON}.use_dist_checkpointing=False")


def known_fields() -> tuple[frozenset[str], str]:
    """The names that are allowed, and where they come from: what is installed, or our table."""
    found: set[str] = set()
    for package, path in _SOURCES:
        for folder in _folders(package):
            found |= dataclass_fields(os.path.join(folder, path))
    return (frozenset(found), "the Megatron installed here") if found else (FIELDS, SOURCE)


def _folders(package: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


def dataclass_fields(path: str) -> set[str]:
    """Names with an annotation in the classes of a source file; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError):
        return set()
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        statement.target.id
        for node in classes
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
