"""Names that verl looks up late: in its workers, after the GPUs are taken."""

import difflib
from collections.abc import Iterable, Iterator, Sequence

from omegaconf import DictConfig, ListConfig, OmegaConf

from verl_msgrpo.preflight.problems import Problem
from verl_msgrpo.preflight.run import ROLLOUT
from verl_msgrpo.preflight.settings import local_path, text, texts, value

CHECK = "names"
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
            nearest = _nearest(wrong, LOGGERS)
            right = [nearest if name == wrong else name for name in named]
            message = f"trainer.logger holds {wrong!r}; known are {', '.join(LOGGERS)}"
            yield Problem(CHECK, message, f"trainer.logger=[{','.join(right)}]")


def known_agents(config: DictConfig) -> tuple[str, ...] | None:
    """Names of agent loops; None where a file of the user's names more and cannot be read."""
    path = text(config, f"{ROLLOUT}.agent.agent_loop_config_path")
    if path is None:
        return VERL_AGENTS + OUR_AGENTS
    try:
        loops = OmegaConf.load(local_path(path) or path)
    except Exception:  # files.py says that it is missing; verl says what is wrong in it
        return None
    if not isinstance(loops, ListConfig):
        return None
    return VERL_AGENTS + OUR_AGENTS + tuple(str(loop.get("name")) for loop in loops)


def _one_of(key: str, found: str | None, known: Iterable[str]) -> Iterator[Problem]:
    names = list(known)
    if found not in names:
        yield unknown(CHECK, key, found, names)


def unknown(check: str, key: str, found: str | None, names: list[str]) -> Problem:
    """`key` holds a name that is not among `names`."""
    nearest = _nearest(found or "", names)
    said = f"is {found!r}" if found else "is not set"
    return Problem(check, f"{key} {said}; known are {', '.join(names)}", f"{key}={nearest}")


def _nearest(name: str, names: Sequence[str]) -> str:
    return (difflib.get_close_matches(name, names, n=1, cutoff=0.4) or names[:1])[0]
