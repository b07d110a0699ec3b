"""verl's configuration out of Hydra overrides, and what verl itself rejects in it.

Every override that verl does not know is named; verl's own validation, which it runs after Ray has
started, is run here.
"""

import contextlib
import copy
import difflib
import importlib.util
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from verl_msgrpo.checked_versions import VERL_RANGE
from verl_msgrpo.errors import UserError
from verl_msgrpo.preflight.settings import (
    ACTOR,
    MEGATRON,
    MODEL,
    REF,
    ROLLOUT,
    Problem,
    one_line,
    quoted,
)

OVERRIDES = "overrides"
VERL = "verl"
CONFIG_NAME = "ppo_trainer"
MAX_UNKNOWN = 20


def verl_config_dir() -> str:
    """The folder of verl's configuration, without importing verl. Raises UserError without verl."""
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"verl is not installed: pip install 'verl{VERL_RANGE}'")
    return os.path.join(spec.submodule_search_locations[0], "trainer", "config")


def compose_config(overrides: Sequence[str]) -> tuple[DictConfig | None, list[Problem]]:
    """Composes `ppo_trainer` as `python -m verl.trainer.main_ppo` does.

    An override that cannot be applied is reported and left out, so that the others are checked too.

    Returns:
        The configuration with its interpolations resolved, None where there is none, and the
        problems.
    """
    problems: list[Problem] = []
    left = list(overrides)
    for text in overrides:
        try:
            OverridesParser.create().parse_override(text)
        except (OverrideParseException, HydraException) as error:
            problems.append(_unreadable(text, error))
            left.remove(text)
    config = None
    while config is None and len(problems) <= MAX_UNKNOWN:
        try:
            config = _compose(left)
        except HydraException as error:
            culprit = _culprit(left, error)
            problems.append(_explained(culprit, left, error))
            if culprit is None:
                return None, problems
            left.remove(culprit)
    if config is None:
        return None, problems
    try:
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "the override"
        message = f"an interpolation refers to nothing: {one_line(error)}"
        problems.append(Problem(OVERRIDES, message, f"{key}=<a value, or one that exists>"))
        return None, problems
    return config, problems


def _compose(overrides: Sequence[str]) -> DictConfig:
    with initialize_config_dir(verl_config_dir(), version_base=None):
        return compose(CONFIG_NAME, overrides=list(overrides))


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0].strip()


def _culprit(overrides: Sequence[str], error: HydraException) -> str | None:
    """The override that an error of Hydra is about."""
    text = str(error)
    named = [override for override in overrides if f"'{_key(override)}'" in text]
    groups = [
        override
        for override in overrides
        if f"{_key(override)}/{override.partition('=')[2]}" in text
    ]
    return next(iter(named or groups), None)


def _unreadable(override: str, error: HydraException) -> Problem:
    key, equals, value = override.partition("=")
    fix = f"{key}={quoted(value)}" if equals else f"{override}=<value>"
    return Problem(OVERRIDES, f"{override!r} is not a Hydra override: {one_line(error, 120)}", fix)


def _explained(culprit: str | None, overrides: Sequence[str], error: HydraException) -> Problem:
    if culprit is None:
        return Problem(OVERRIDES, one_line(error), "correct the override that is named")
    key, _, value = culprit.lstrip("+~").partition("=")
    if "append" in str(error) and culprit.startswith("+"):
        return Problem(OVERRIDES, f"{key} exists already, so `+` is wrong", f"{key}={value}")
    if isinstance(error, MissingConfigException):  # a group: model_engine=megatorn
        options = _options(str(error))
        nearest = difflib.get_close_matches(value, options, n=1, cutoff=0.3) or options[:1]
        message = f"{culprit}: unknown; known are {', '.join(options)}"
        return Problem(
            OVERRIDES, message, f"{key}={nearest[0]}" if nearest else f"remove {culprit}"
        )
    groups = [one for one in overrides if _key(one) == "model_engine"]
    with contextlib.suppress(HydraException):
        nearest_key = closest_key(key, sorted(leaves(_compose(groups))))
        if nearest_key is not None:
            return Problem(OVERRIDES, f"verl has no key {key}", f"{nearest_key}={value}")
    return Problem(OVERRIDES, f"verl has no key {key}: {one_line(error)}", f"remove {culprit}")


def _options(text: str) -> list[str]:
    """The indented list after "Available options" in an error of Hydra."""
    lines = text.partition("Available options")[2].splitlines()[1:]
    options = []
    for line in lines:
        if not line.startswith("\t"):
            break
        options.append(line.strip())
    return options


def leaves(config: DictConfig) -> Iterator[str]:
    """Full names of all keys, `a.b.c`, of sections too."""

    def walk(node: object, prefix: str) -> Iterator[str]:
        if isinstance(node, Mapping):
            for name, child in node.items():
                yield f"{prefix}{name}"
                yield from walk(child, f"{prefix}{name}.")

    yield from walk(OmegaConf.to_container(config, resolve=False), "")


def closest_key(key: str, known: Sequence[str]) -> str | None:
    """The key that was probably meant: the same last name nearby, or nearly the same spelling."""
    parts = key.split(".")
    same_name = [one for one in known if one.split(".")[-1] == parts[-1]]

    def shared(one: str) -> tuple[int, int]:
        theirs = one.split(".")
        count = 0
        while count < min(len(parts), len(theirs)) and parts[count] == theirs[count]:
            count += 1
        return count, -len(theirs)

    if (same_name and parts[0] in ("", same_name[0].split(".")[0])) or len(same_name) == 1:
        best = max(same_name, key=shared)
        if shared(best)[0] > 0 or len(same_name) == 1:
            return best
    return next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.75)), None)


# --- verl's own validation ------------------------------------------------------------------------

# Part of verl's message -> an override that fixes it.
FIXES = (
    ("loss_agg_mode", f"{ACTOR}.loss_agg_mode=token-mean"),
    ("Rollout mode 'sync'", f"{ROLLOUT}.mode=async"),
    ("pipeline_model_parallel_size > 1", f"{ROLLOUT}.pipeline_model_parallel_size=1"),
    ("expert_parallel_size must be equal", f"{ROLLOUT}.expert_parallel_size=1"),
    ("temperature should be greater", f"{ROLLOUT}.temperature=1.0"),
    ("use_remove_padding", f"{MODEL}.use_remove_padding=True"),
    ("router_replay", f"{MEGATRON}.router_replay.mode=disabled"),
    ("log_prob_micro_batch_size", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=1"),
    ("ppo_micro_batch_size", f"{ACTOR}.ppo_micro_batch_size_per_gpu=1"),
    ("must be >= actor.ppo_mini_batch_size", f"{ACTOR}.ppo_mini_batch_size=<at most the batch>"),
    ("strategy", f"{ACTOR}.strategy=fsdp2"),
    ("max_seqlen_per_dp_cp_rank", f"{MEGATRON}.dynamic_context_parallel=False"),
    ("dtype", f"{MEGATRON}.dtype=bfloat16"),
    ("lora", f"{MODEL}.lora_rank=0"),
    ("disaggregation", f"{ROLLOUT}.disaggregation.enabled=False"),
)


def check_verl(config: DictConfig) -> Iterator[Problem]:
    """Runs validate_config and builds the dataclasses that verl's workers build."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    def validate() -> None:
        validate_config(config, need_reference_policy(config), need_critic(config))

    steps: list[Callable[[], object]] = [
        validate,
        lambda: omega_conf_to_dataclass(config.actor_rollout_ref.actor),
        lambda: omega_conf_to_dataclass(config.actor_rollout_ref.rollout),
    ]
    if need_reference_policy(config):
        steps.append(lambda: omega_conf_to_dataclass(_as_reference(config)))
    seen = set()
    for step in steps:
        message = _failure(step)
        if message is not None and message not in seen:
            seen.add(message)
            yield Problem(VERL, message, _fix(message))


def _as_reference(config: DictConfig) -> DictConfig:
    """The reference model's section as verl's worker renames it before it builds the engine."""
    ref = copy.deepcopy(OmegaConf.select(config, REF))
    with open_dict(ref):
        ref.ppo_mini_batch_size = OmegaConf.select(config, f"{ACTOR}.ppo_mini_batch_size")
        ref.ppo_micro_batch_size = ref.pop("log_prob_micro_batch_size", None)
        ref.ppo_micro_batch_size_per_gpu = ref.pop("log_prob_micro_batch_size_per_gpu", None)
        ref.use_dynamic_bsz = ref.pop("log_prob_use_dynamic_bsz", False)
        ref.ppo_max_token_len_per_gpu = ref.pop("log_prob_max_token_len_per_gpu", None)
    return ref


def _failure(step: Callable[[], object]) -> str | None:
    """What a step of verl rejects, None if nothing. verl's own prints and warnings are dropped."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            step()
        except Exception as error:  # asserts, ValueErrors, errors of Hydra around them
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            return one_line(cause) or type(cause).__name__
    return None


def _fix(message: str) -> str:
    return next((fix for part, fix in FIXES if part in message), "the setting that verl names")
