"""The reward function: whether it loads, knows its settings, and scores a row."""

import inspect
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from omegaconf import DictConfig

from verl_msgrpo.preflight.settings import ERROR, WARNING, Problem, one_line, text, value

CHECK = "reward"
SECTION = "reward.custom_reward_function"
GIVEN = ("data_source", "solution_str", "ground_truth", "extra_info")
TRIAL_SECONDS = 5.0
# A well-formed answer to every task's prompt; nearly always a wrong one.
TRIAL_TEXT = "\\boxed{A}\n<answer>A</answer>\n```python\nprint()\n```"


def check_reward(config: DictConfig, row: Mapping[str, object] | None) -> Iterator[Problem]:
    """Loads the function as verl does, in this process, and calls it once.

    Args:
        row: a training row; without one the function is not called.
    """
    path = text(config, f"{SECTION}.path")
    if path is None:
        return
    from verl.utils.import_utils import load_extern_object

    name = text(config, f"{SECTION}.name") or "compute_score"
    try:
        function = load_extern_object(module_path=path, object_name=name)
    except FileNotFoundError:
        fix = f"{SECTION}.path=reward_fns/search_qa.py, or a file that exists"
        yield Problem(CHECK, f"{SECTION}.path: {path} does not exist", fix)
        return
    except AttributeError:
        message = f"{path} has no {name}"
        yield Problem(CHECK, message, f"{SECTION}.name=compute_score")
        return
    except Exception as error:  # whatever the user's file raises while it is imported
        reason = one_line(error.__cause__ or error)
        message = f"{path} does not load: {reason}"
        yield Problem(CHECK, message, f"{SECTION}.path=<a file that imports: python {path}>")
        return
    if not callable(function):
        yield Problem(CHECK, f"{name} in {path} is no function", f"{SECTION}.name=compute_score")
        return
    settings = value(config, f"{SECTION}.reward_kwargs")
    kwargs: dict[str, object] = {}
    if isinstance(settings, DictConfig):
        kwargs = {str(name): setting for name, setting in settings.items()}
    wrong = list(_settings(function, kwargs))
    yield from wrong
    if row is not None and not wrong and not inspect.iscoroutinefunction(function):
        yield from _trial(function, kwargs, row)


def _settings(function: Callable[..., object], kwargs: Mapping[str, object]) -> Iterator[Problem]:
    """reward_kwargs against the function's parameters: `**_` swallows a misspelt one."""
    try:
        parameters = inspect.signature(function).parameters
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
    severity = ERROR if not open_ended or _is_ours(function) else WARNING
    for name, setting in kwargs.items():
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
        fix = _renamed(name, setting, own, _is_dispatch(function))
        known = ", ".join(own) or "none"
        message = f"reward_kwargs.{name} is no setting of the function; it has {known}"
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


def _is_ours(function: Callable[..., object]) -> bool:
    return (getattr(function, "__module__", "") or "").startswith("verl_msgrpo.")


def _is_dispatch(function: Callable[..., object]) -> bool:
    return getattr(function, "__module__", None) == "verl_msgrpo.rewards.dispatch"


def _trial(
    function: Callable[..., object], kwargs: Mapping[str, object], row: Mapping[str, object]
) -> Iterator[Problem]:
    """Calls the function in a thread, as verl's reward workers do."""
    reward_model = row.get("reward_model")
    truth = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    given = dict(
        zip(GIVEN, (row.get("data_source"), TRIAL_TEXT, truth, row.get("extra_info")), strict=True)
    )
    results: queue.SimpleQueue[tuple[object, BaseException | None]] = queue.SimpleQueue()

    def call() -> None:
        try:
            results.put((function(**{**given, **kwargs}), None))
        except Exception as error:
            results.put((None, error))

    path = f"{SECTION}.path=<a function that scores the first row of data.train_files>"
    said = _Said()
    logging.getLogger("verl_msgrpo.rewards").addHandler(said)
    threading.Thread(target=call, daemon=True).start()
    try:
        result, error = results.get(timeout=TRIAL_SECONDS)
    except queue.Empty:
        message = f"on the first row it takes longer than {TRIAL_SECONDS:g} s"
        yield Problem(CHECK, message, path, WARNING)
        return
    finally:
        logging.getLogger("verl_msgrpo.rewards").removeHandler(said)
    if error is not None:
        message = f"on the first row it raises {type(error).__name__}: {one_line(error)}"
        yield Problem(CHECK, message, path)
    elif isinstance(result, Mapping):
        # What other people's functions mean by a number called timeout is theirs.
        failures = ("error", "timeout") if _is_ours(function) else ("error",)
        failed = next((key for key in failures if result.get(key)), None)
        if failed:
            reason = one_line(said.last or f"{failed} = {result[failed]}")
            message = f"it cannot score the first row: {reason}"
            yield Problem(CHECK, message, _setting_named(reason, kwargs) or path)
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
