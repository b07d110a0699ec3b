"""A launch's settings: how one is read, what is said of a wrong one, and which are numbers.

The sections of verl's configuration have their names here. Every check yields `Problem`s.
"""

import difflib
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_msgrpo.common.numbers import integer, not_allowed, real

MODEL = "actor_rollout_ref.model"
ACTOR = "actor_rollout_ref.actor"
REF = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
MEGATRON = f"{ACTOR}.megatron"
FSDP = f"{ACTOR}.fsdp_config"

ERROR = "error"
WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and the override (or the command) that fixes it."""

    check: str
    """Family of the check, for example "parallelism"."""
    message: str
    fix: str
    severity: str = ERROR


def one_line(error: BaseException | str, limit: int = 400) -> str:
    """The text of an error without line breaks, cut to `limit` characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 4] + " ..."


def unknown(check: str, key: str, found: str | None, names: Sequence[str]) -> Problem:
    """`key` holds a name that is not among `names`."""
    said = f"is {found!r}" if found else "is not set"
    fix = f"{key}={nearest(found or '', names)}"
    return Problem(check, f"{key} {said}; known are {', '.join(names)}", fix)


def nearest(name: str, names: Sequence[str]) -> str:
    """The one of `names` that was probably meant, else the first."""
    return (difflib.get_close_matches(name, names, n=1, cutoff=0.4) or list(names))[0]


# --- Reading --------------------------------------------------------------------------------------


def value(config: DictConfig, key: str) -> object:
    """What `a.b.c` holds; None where there is nothing, or where it must still be set (`???`)."""
    try:
        return OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return None


def whole(config: DictConfig, key: str, default: int = 1) -> int:
    """A whole number at `key`, `default` where there is none. `check_numbers` has checked it."""
    found = value(config, key)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def number(config: DictConfig, key: str, default: float = 0.0) -> float:
    """A number at `key`, `default` where there is none."""
    found = value(config, key)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return float(found)
    return default


def text(config: DictConfig, key: str) -> str | None:
    """A text at `key` that is not empty, else None."""
    found = value(config, key)
    return found if isinstance(found, str) and found else None


def texts(config: DictConfig, key: str) -> list[str]:
    """One text or a list of them, as a list."""
    found = value(config, key)
    if isinstance(found, str):
        return [found]
    return [str(item) for item in found] if isinstance(found, ListConfig | list) else []


def is_on(config: DictConfig, key: str) -> bool:
    """Whether a switch is on."""
    return value(config, key) is True


def local_path(path: str) -> str | None:
    """The path on this machine, None for an address such as hdfs://..."""
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    if urlsplit(path).scheme not in ("", "file"):
        return None
    return os.path.expanduser(path)


def existing_parent(path: str) -> str:
    """The path itself, or the nearest folder above it that exists."""
    path = os.path.abspath(path or ".")
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def quoted(text: str) -> str:
    """A text as Hydra reads it in an override, in quotes where it needs them.

    Hydra takes backslashes as they are, except before a quote; OmegaConf takes `${` as a reference.
    examples/common/quoted.sh has the same rule for bash.
    """
    is_word = re.fullmatch(r"[A-Za-z_/][A-Za-z0-9_./:-]*", text)
    if is_word and text.lower() not in ("null", "true", "false", "inf", "nan"):
        return text
    doubled = re.sub(r"(\\*)'", r"\1\1\\'", text)
    doubled = re.sub(r"(\\+)$", r"\1\1", doubled).replace("${", "\\${")
    return f"'{doubled}'"


# --- Numbers --------------------------------------------------------------------------------------
NUMBERS = "numbers"


@dataclass(frozen=True)
class _Rule:
    keys: str
    """Names below one section, separated by spaces."""
    section: str
    example: str
    low: float
    high: float = math.inf
    """Of what is not whole only."""
    whole: bool = True
    null: bool = False


_PARALLEL = (
    "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
    "expert_model_parallel_size"
)

RULES = (
    _Rule("nnodes", "trainer", "1", 1),
    _Rule("n_gpus_per_node", "trainer", "8", 1),
    _Rule("total_epochs", "trainer", "1000", 1),
    _Rule("total_training_steps max_actor_ckpt_to_keep", "trainer", "100", 1, null=True),
    _Rule("save_freq test_freq", "trainer", "25", -1),
    _Rule("parameter_sync_step", "trainer.v1.separate_async", "4", 1),
    _Rule("train_batch_size", "data", "256", 1),
    _Rule("max_prompt_length max_response_length", "data", "1024", 1),
    _Rule("train_max_samples val_max_samples", "data", "-1", -1),
    _Rule("gen_batch_size val_batch_size", "data", "null", 1, null=True),
    _Rule("seed", "data", "0", 0, null=True),
    _Rule("ppo_mini_batch_size", ACTOR, "128", 1),
    _Rule("ppo_epochs", ACTOR, "1", 1),
    _Rule("ppo_max_token_len_per_gpu", ACTOR, "16384", 1),
    _Rule("ppo_micro_batch_size_per_gpu ppo_micro_batch_size", ACTOR, "4", 1, null=True),
    _Rule("kl_loss_coef clip_ratio clip_ratio_low clip_ratio_high", ACTOR, "0.001", 0, whole=False),
    _Rule("entropy_coeff", ACTOR, "0", -math.inf, whole=False),
    _Rule("lr", f"{ACTOR}.optim", "1e-6", 0, 1, whole=False),
    _Rule("weight_decay", f"{ACTOR}.optim", "0.01", 0, whole=False),
    _Rule(_PARALLEL, MEGATRON, "1", 1),
    _Rule(_PARALLEL, f"{REF}.megatron", "1", 1),
    _Rule("virtual_pipeline_model_parallel_size", MEGATRON, "null", 1, null=True),
    _Rule("ulysses_sequence_parallel_size", FSDP, "1", 1),
    _Rule("ulysses_sequence_parallel_size", ACTOR, "1", 1),
    _Rule("log_prob_max_token_len_per_gpu", REF, "16384", 1, null=True),
    _Rule("log_prob_micro_batch_size_per_gpu log_prob_micro_batch_size", REF, "4", 1, null=True),
    _Rule("n", ROLLOUT, "8", 1),
    _Rule("tensor_model_parallel_size data_parallel_size", ROLLOUT, "1", 1),
    _Rule("pipeline_model_parallel_size expert_parallel_size", ROLLOUT, "1", 1),
    _Rule("max_num_seqs max_num_batched_tokens", ROLLOUT, "1024", 1),
    _Rule("max_model_len", ROLLOUT, "null", 1, null=True),
    _Rule("log_prob_max_token_len_per_gpu", ROLLOUT, "16384", 1, null=True),
    _Rule("log_prob_micro_batch_size_per_gpu", ROLLOUT, "4", 1, null=True),
    _Rule("gpu_memory_utilization", ROLLOUT, "0.6", 0.01, 1, whole=False),
    _Rule("temperature", ROLLOUT, "1.0", 0, whole=False),
    _Rule("top_p", ROLLOUT, "1.0", 0, 1, whole=False),
    _Rule("n", f"{ROLLOUT}.val_kwargs", "1", 1),
    _Rule("temperature", f"{ROLLOUT}.val_kwargs", "0", 0, whole=False),
    _Rule("top_p", f"{ROLLOUT}.val_kwargs", "1.0", 0, 1, whole=False),
    _Rule("num_workers", f"{ROLLOUT}.agent", "8", 1),
    _Rule("max_assistant_turns max_user_turns", f"{ROLLOUT}.multi_turn", "5", 1, null=True),
    _Rule("max_parallel_calls", f"{ROLLOUT}.multi_turn", "1", 1),
)

SWITCHES = (
    f"{ACTOR}.use_dynamic_bsz",
    f"{ACTOR}.use_kl_loss",
    f"{MEGATRON}.param_offload",
    f"{MEGATRON}.optimizer_offload",
    f"{MEGATRON}.use_mbridge",
    f"{FSDP}.param_offload",
    f"{FSDP}.optimizer_offload",
    f"{REF}.megatron.param_offload",
    f"{REF}.fsdp_config.param_offload",
    f"{ROLLOUT}.log_prob_use_dynamic_bsz",
    f"{ROLLOUT}.multi_turn.enable",
    f"{ROLLOUT}.val_kwargs.do_sample",
    f"{MODEL}.use_remove_padding",
    "algorithm.use_kl_in_reward",
    "data.filter_overlong_prompts",
    "trainer.val_before_train",
)


def check_numbers(config: DictConfig) -> Iterator[Problem]:
    """Values of another kind, or out of range. The other checks rely on these being right.

    verl's own configuration takes any text where it needs a number.
    """
    for rule in RULES:
        section = value(config, rule.section)
        if section is None:  # the section of another engine
            continue
        for name in rule.keys.split():
            key = f"{rule.section}.{name}"
            is_there = isinstance(section, DictConfig) and name in section
            wrong = _wrong_number(rule, key, value(config, key)) if is_there else None
            if wrong is not None:
                yield Problem(NUMBERS, wrong, f"{key}={rule.example}")
    for key in SWITCHES:
        found = value(config, key)
        if found is not None and not isinstance(found, bool):
            wrong = str(not_allowed(key, "True or False", found))
            yield Problem(NUMBERS, wrong, f"{key}=True")


def _wrong_number(rule: _Rule, key: str, found: object) -> str | None:
    if found is None and rule.null:
        return None
    try:
        if rule.whole:
            # verl counts with it, and fails with 4.0.
            given = str(found) if isinstance(found, float) else found
            integer(key, given, int(rule.low))
        else:
            real(key, found, rule.low, rule.high)
    except ValueError as error:
        allowed, got, shown = str(error).partition(", got ")
        return f"{allowed}{' or null' if rule.null else ''}{got}{shown}"
    return None
