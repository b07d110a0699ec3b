"""Names that verl and Megatron look up late: in their workers, after the GPUs are taken."""

import ast
import difflib
import importlib.util
import os
from collections.abc import Iterator, Sequence

from omegaconf import DictConfig, ListConfig, OmegaConf

from verl_msgrpo.preflight.launch import Launch
from verl_msgrpo.preflight.settings import (
    MEGATRON,
    ROLLOUT,
    WARNING,
    Problem,
    is_on,
    local_path,
    nearest,
    text,
    texts,
    unknown,
    value,
)

NAMES = "names"
# Registries of verl 0.9.1 whose import costs seconds; tests/test_verl_assumptions.py compares them.
ROLLOUT_NAMES = ("vllm", "sglang", "trtllm")
TRAINER_MODES = ("sync", "colocate_async", "separate_async")
TOOL_FORMATS = (
    "hermes",
    "gpt-oss",
    "qwen3_coder",
    "glm",
    "seed",
    "minimax",
    "kimi",
    "deepseek_v4",
    "gemma4",
)
LOGGERS = (
    "console",
    "file",
    "wandb",
    "tensorboard",
    "mlflow",
    "swanlab",
    "vemlp_wandb",
    "clearml",
    "trackio",
    "rl_insight",
)
VERL_AGENTS = ("single_turn_agent", "tool_agent")
OUR_AGENTS = ("search_tool_agent", "search_r1_agent")


def check_names(config: DictConfig) -> Iterator[Problem]:
    """Rollout engine, trainer mode, loggers, agent loop and format of tool calls."""
    yield from _one_of(f"{ROLLOUT}.name", text(config, f"{ROLLOUT}.name"), ROLLOUT_NAMES)
    key = "trainer.v1.trainer_mode"
    yield from _one_of(key, text(config, key), TRAINER_MODES)
    yield from _loggers(texts(config, "trainer.logger"))
    agents = known_agents(config)
    key = f"{ROLLOUT}.agent.default_agent_loop"
    if agents is not None:
        yield from _one_of(key, text(config, key), agents)
    if value(config, f"{ROLLOUT}.multi_turn.enable") is True:
        key = f"{ROLLOUT}.multi_turn.format"
        yield from _one_of(key, text(config, key), TOOL_FORMATS)


def _loggers(named: list[str]) -> Iterator[Problem]:
    known = (*LOGGERS, "tracking")  # the last is what wandb was called
    for wrong in named:
        if wrong not in known:
            right = [nearest(wrong, LOGGERS) if name == wrong else name for name in named]
            message = f"trainer.logger holds {wrong!r}; known are {', '.join(LOGGERS)}"
            yield Problem(NAMES, message, f"trainer.logger=[{','.join(right)}]")


def known_agents(config: DictConfig) -> tuple[str, ...] | None:
    """Names of agent loops; None where a file of the user's names more and cannot be read."""
    path = text(config, f"{ROLLOUT}.agent.agent_loop_config_path")
    if path is None:
        return VERL_AGENTS + OUR_AGENTS
    try:
        loops = OmegaConf.load(local_path(path) or path)
    except Exception:  # check_files says that it is missing; verl says what is wrong with it
        return None
    if not isinstance(loops, ListConfig):
        return None
    return VERL_AGENTS + OUR_AGENTS + tuple(str(loop.get("name")) for loop in loops)


def _one_of(key: str, found: str | None, known: Sequence[str]) -> Iterator[Problem]:
    if found not in known:
        yield unknown(NAMES, key, found, known)


# --- Megatron -------------------------------------------------------------------------------------

MEGATRON_OPTIONS = "megatron"
OPTIONS = f"{MEGATRON}.override_transformer_config"
# Those that verl's own configuration sets; tests/test_verl_assumptions.py compares them.
VERL_OPTIONS = (
    "recompute_granularity",
    "recompute_modules",
    "recompute_method",
    "recompute_num_layers",
    "attention_backend",
)
# Where Megatron declares its options; read as text, since importing it may need a GPU.
_SOURCES = (
    ("megatron.core", "model_parallel_config.py"),
    ("megatron.core", "transformer/transformer_config.py"),
    ("megatron.bridge", "models/gpt_provider.py"),
)


def check_megatron(launch: Launch) -> Iterator[Problem]:
    """Names of the transformer's options, the bridge, and the dtype."""
    if not launch.is_megatron:
        return
    config = launch.config
    yield from _options(config)
    if value(config, f"{MEGATRON}.use_mbridge") is not True:
        message = "verl's Megatron engine reads Hugging Face weights through the bridge only"
        yield Problem(MEGATRON_OPTIONS, message, f"{MEGATRON}.use_mbridge=True")
    if value(config, f"{MEGATRON}.vanilla_mbridge") is True:
        message = "vanilla_mbridge is deprecated in verl 0.9 and will be removed"
        yield Problem(MEGATRON_OPTIONS, message, f"{MEGATRON}.vanilla_mbridge=False", WARNING)
    if (dtype := text(config, f"{MEGATRON}.dtype")) not in ("bfloat16", "float16"):
        message = f"{MEGATRON}.dtype is {dtype}; it must be bfloat16 or float16"
        yield Problem(MEGATRON_OPTIONS, message, f"{MEGATRON}.dtype=bfloat16")
    path = f"{MEGATRON}.dist_checkpointing_path"
    if is_on(config, f"{MEGATRON}.use_dist_checkpointing") and not text(config, path):
        message = f"use_dist_checkpointing loads the weights from {path}, which is not set"
        yield Problem(MEGATRON_OPTIONS, message, f"{MEGATRON}.use_dist_checkpointing=False")


def _options(config: DictConfig) -> Iterator[Problem]:
    """A name that Megatron does not know ends the run, late."""
    names = option_names(config)
    known = installed_options()
    if not known:
        return  # `unchecked_options` says so
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            plus = "" if near and near[0] in names else "+"
            given = value(config, f"{OPTIONS}.{name}")
            fix = f"{plus}{OPTIONS}.{near[0]}={given}" if near else f"remove {OPTIONS}.{name}"
            message = f"{OPTIONS}.{name}: the installed Megatron has no such field"
            yield Problem(MEGATRON_OPTIONS, message, fix)


def unchecked_options(launch: Launch) -> str | None:
    """The note that says which options were not compared with Megatron's, and why."""
    if not launch.is_megatron or installed_options():
        return None
    names = [name for name in option_names(launch.config) if name not in VERL_OPTIONS]
    if not names:
        return None
    return f"{OPTIONS}: {', '.join(names)}, because Megatron is not installed here"


def option_names(config: DictConfig) -> list[str]:
    """The names in `override_transformer_config`."""
    options = value(config, OPTIONS)
    return [str(name) for name in options] if isinstance(options, DictConfig) else []


def installed_options() -> frozenset[str]:
    """The options of the installed Megatron and its bridge; empty where one is not installed."""
    found = set(VERL_OPTIONS)
    for package, path in _SOURCES:
        folders = _folders(package)
        fields = {name for folder in folders for name in _fields(os.path.join(folder, path))}
        if not fields:
            return frozenset()
        found |= fields
    return frozenset(found)


def _folders(package: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


def _fields(path: str) -> set[str]:
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
