"""The reward function: whether it loads, knows its settings, and scores a row.

Where it runs programs that models write, also what isolates them.
"""

import inspect
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from time import monotonic

from omegaconf import DictConfig

from verl_msgrpo.preflight.settings import ERROR, WARNING, Problem, one_line, text, value

CHECK = "reward"
SECTION = "reward.custom_reward_function"
GIVEN = ("data_source", "solution_str", "ground_truth", "extra_info")
TRIAL_LIMIT_S = 5.0
START_LIMIT_S = 120.0  # of a first call, in which workers may start; on a busy machine that is slow
# A well-formed answer to every task's prompt; nearly always a wrong one.
TRIAL_TEXT = "\\boxed{A}\n<answer>A</answer>\n```python\nprint()\n```"


@dataclass(frozen=True)
class RewardFunction:
    """A reward function that was loaded, with its `reward_kwargs`."""

    call: Callable[..., object]
    kwargs: Mapping[str, object]

    @property
    def module(self) -> str:
        return getattr(self.call, "__module__", None) or ""

    @property
    def is_ours(self) -> bool:
        return self.module.startswith("verl_msgrpo.")

    @property
    def is_dispatch(self) -> bool:
        return self.module == "verl_msgrpo.rewards.dispatch"


def load_reward(config: DictConfig) -> tuple[RewardFunction | None, list[Problem]]:
    """Loads the function as verl does, in this process; None where there is none, or it fails."""
    path = text(config, f"{SECTION}.path")
    if path is None:
        return None, []
    from verl.utils.import_utils import load_extern_object

    name = text(config, f"{SECTION}.name") or "compute_score"
    try:
        function = load_extern_object(module_path=path, object_name=name)
    except FileNotFoundError:
        fix = f"{SECTION}.path=reward_fns/search_qa.py, or a file that exists"
        return None, [Problem(CHECK, f"{SECTION}.path: {path} does not exist", fix)]
    except AttributeError:
        fix = f"{SECTION}.name=compute_score"
        return None, [Problem(CHECK, f"{path} has no {name}", fix)]
    except Exception as error:  # whatever the user's file raises while it is imported
        message = f"{path} does not load: {one_line(error.__cause__ or error)}"
        fix = f"{SECTION}.path=<a file that imports: python {path}>"
        return None, [Problem(CHECK, message, fix)]
    if not callable(function):
        message = f"{name} in {path} is not a function"
        return None, [Problem(CHECK, message, f"{SECTION}.name=compute_score")]
    settings = value(config, f"{SECTION}.reward_kwargs")
    kwargs = {}
    if isinstance(settings, DictConfig):
        kwargs = {str(name): setting for name, setting in settings.items()}
    return RewardFunction(function, kwargs), []


def check_reward(reward: RewardFunction, row: Mapping[str, object] | None) -> Iterator[Problem]:
    """Compares its settings with its parameters, and calls it.

    Args:
        reward: as `load_reward` gives it.
        row: a training row; without one the function is not called.
    """
    wrong = list(_settings(reward))
    yield from wrong
    if row is not None and not wrong and not inspect.iscoroutinefunction(reward.call):
        yield from _trial(reward, row)


def isolation_of_programs(reward: RewardFunction) -> str | None:
    """What isolates the programs that the reward runs, in a line; None where it runs none."""
    settings: object = reward.kwargs
    if reward.is_dispatch:  # it has each task's settings under the task's name
        settings = reward.kwargs.get("code_tests")
    elif reward.module != "verl_msgrpo.rewards.code_tests":
        return None
    given = settings if isinstance(settings, Mapping) else {}
    from verl_msgrpo.rewards.code.isolation import in_force

    url = given.get("sandbox_fusion_url")
    return in_force(str(given.get("isolation", "auto")), str(url) if url else None)


def _settings(reward: RewardFunction) -> Iterator[Problem]:
    """reward_kwargs against the function's parameters: `**_` swallows a misspelt one."""
    try:
        parameters = inspect.signature(reward.call).parameters
    except (TypeError, ValueError):
        return
    named = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    open_ended = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())
    missing = [name for name in GIVEN if name not in named]
    if missing and not open_ended:
        message = f"the function takes no {', '.join(missing)}, which verl passes"
        yield Problem(
            CHECK, message, f"{SECTION}.path=<a function of {', '.join(GIVEN)}, **kwargs>"
        )
    own = [name for name in named if name not in GIVEN]
    severity = ERROR if not open_ended or reward.is_ours else WARNING
    for name, setting in reward.kwargs.items():
        if name in own:
            default = parameters[name].default
            if not _is_like(setting, default):
                kind = type(default).__name__
                message = (
                    f"reward_kwargs.{name} is {setting!r}; its default is the {kind} {default}"
                )
                fix = f"+{SECTION}.reward_kwargs.{name}={default}"
                yield Problem(CHECK, message, fix, severity)
            continue
        if open_ended and not own:
            continue
        fix = _renamed(name, setting, own, reward.is_dispatch)
        known = ", ".join(own) or "none"
        message = f"reward_kwargs.{name} is not a setting of the function; it has {known}"
        yield Problem(CHECK, message, fix, severity)


def _renamed(name: str, setting: object, own: Sequence[str], is_dispatch: bool) -> str:
    """An override for what was probably meant."""
    if is_dispatch:  # it takes each task's settings under the task's name
        tasks = " | ".join(task for task in own if task != "tasks")
        return f"+{SECTION}.reward_kwargs.<{tasks}>.{name}={setting}"
    nearest = get_close_matches(name, own, n=1, cutoff=0.3)
    return f"+{SECTION}.reward_kwargs.{nearest[0]}={setting}" if nearest else f"remove {name}"


def _is_like(setting: object, default: object) -> bool:
    """Whether a setting has the kind of its default: a switch, a number or a text."""
    if isinstance(default, bool):
        return isinstance(setting, bool)
    if isinstance(default, int | float):
        return isinstance(setting, int | float) and not isinstance(setting, bool)
    return not isinstance(default, str) or isinstance(setting, str)


def _trial(reward: RewardFunction, row: Mapping[str, object]) -> Iterator[Problem]:
    """Judges the first call, or a second one where the first may have waited for workers."""
    path = f"{SECTION}.path=<a function that scores the first row of data.train_files>"
    begin = monotonic()
    answer = _answer(reward, row, START_LIMIT_S)
    if answer is None:
        message = f"on the first row it does not end within {START_LIMIT_S:g} s"
        yield Problem(CHECK, f"{message}, the start of its workers included", path, WARNING)
        return
    if monotonic() - begin > TRIAL_LIMIT_S or answer.is_timeout(reward):
        first, answer = answer, _answer(reward, row, TRIAL_LIMIT_S)
        if answer is not None and not answer.said:  # our rewards warn of the first failure only
            answer = replace(answer, said=first.said)
    if answer is None:
        message = f"on the first row it takes longer than {TRIAL_LIMIT_S:g} s"
        yield Problem(CHECK, f"{message}, though its workers have started", path, WARNING)
    else:
        yield from _judged(reward, answer, path)


@dataclass(frozen=True)
class _Answer:
    """What a call returned or raised, and the last warning of our rewards during it."""

    result: object
    error: Exception | None
    said: str

    def is_timeout(self, reward: RewardFunction) -> bool:
        # What other people's functions mean by a number called timeout is theirs.
        result = self.result
        return reward.is_ours and isinstance(result, Mapping) and bool(result.get("timeout"))


def _answer(reward: RewardFunction, row: Mapping[str, object], limit_s: float) -> _Answer | None:
    """Calls the function in a thread, as verl's reward workers do; None where it does not end."""
    reward_model = row.get("reward_model")
    truth = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    given = dict(
        zip(GIVEN, (row.get("data_source"), TRIAL_TEXT, truth, row.get("extra_info")), strict=True)
    )
    results: queue.SimpleQueue[tuple[object, Exception | None]] = queue.SimpleQueue()

    def call() -> None:
        try:
            results.put((reward.call(**{**given, **reward.kwargs}), None))
        except Exception as error:
            results.put((None, error))

    said = _Said()
    logging.getLogger("verl_msgrpo.rewards").addHandler(said)
    threading.Thread(target=call, daemon=True).start()
    try:
        result, error = results.get(timeout=limit_s)
    except queue.Empty:
        return None
    finally:
        logging.getLogger("verl_msgrpo.rewards").removeHandler(said)
    return _Answer(result, error, said.last)


def _judged(reward: RewardFunction, answer: _Answer, path: str) -> Iterator[Problem]:
    result = answer.result
    if answer.error is not None:
        kind = type(answer.error).__name__
        message = f"on the first row it raises {kind}: {one_line(answer.error)}"
        yield Problem(CHECK, message, path)
    elif isinstance(result, Mapping):
        failed = "error" if result.get("error") else "timeout" if answer.is_timeout(reward) else ""
        if failed:
            reason = one_line(answer.said or f"{failed} = {result[failed]}")
            message = f"it cannot score the first row: {reason}"
            yield Problem(CHECK, message, _setting_named(reason, reward.kwargs) or path)
        elif "score" not in result:
            yield Problem(CHECK, "its result has no key `score`", path)
    elif isinstance(result, bool) or not isinstance(result, int | float):
        yield Problem(CHECK, f"it returns {type(result).__name__}, not a number or a dict", path)


class _Said(logging.Handler):
    """The last warning of our rewards, which say by it why a response could not be scored."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def _setting_named(message: str, kwargs: Mapping[str, object]) -> str | None:
    """An override for the first of reward_kwargs that an error speaks of."""
    name = next((name for name in kwargs if str(name) in message), None)
    return f"~{SECTION}.reward_kwargs.{name}, or a value that it allows" if name else None
