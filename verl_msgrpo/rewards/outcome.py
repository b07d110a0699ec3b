"""A reward's result: the same keys on every path, whatever happens inside.

A reward is a function that returns an `Outcome`, or raises where a row or a setting is wrong;
`@scored` makes of it what verl calls.
"""

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec

from verl_msgrpo.common.numbers import real
from verl_msgrpo.common.text import encodable

MAX_PRED_CHARS = 10_000
Reward = dict[str, float | str]
P = ParamSpec("P")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """One scored response.

    value: what the answer is worth, 0 to 1, before the format counts.
    correct: whether it is right (`acc`).
    pred: the extracted answer, "" if there is none.
    parts: the task's own numbers, under the keys that the task declares.
    """

    value: float = 0.0
    correct: bool = False
    format_ok: bool = False
    pred: str = ""
    truncated: bool = False
    timeout: bool = False
    parts: dict[str, float] = field(default_factory=dict)


class Alarm:
    """Warns when many responses cannot be scored, which would otherwise look like a bad policy."""

    window = 200
    share = 0.1

    def __init__(self, task: str) -> None:
        self._task = task
        self._lock = threading.Lock()
        self._calls = self._failures = 0

    def count(self, failure: str) -> None:
        """Counts one response; `failure` says in a line why it was not scored, "" if it was."""
        with self._lock:
            self._calls += 1
            self._failures += bool(failure)
            calls, failures = self._calls, self._failures
            first = bool(failure) and failures == 1
            if calls == self.window:
                self._calls = self._failures = 0
        if calls == self.window and failures >= self.share * calls:
            _logger.warning(
                "%s: %d of the last %d responses could not be scored and got 0, the last one: %s",
                *(self._task, failures, calls, failure or "see above"),
            )
        elif first:
            _logger.warning("%s: a response could not be scored: %s", self._task, failure)

    def forget(self) -> None:
        """Starts anew, for tests."""
        with self._lock:
            self._calls = self._failures = 0


def scored(
    alarm: Alarm, *, keys: Sequence[str] = ()
) -> Callable[[Callable[P, Outcome | Reward]], Callable[P, Reward]]:
    """Makes a function that never raises, and has the same keys on every path, of a reward.

    The keys are `score`, `acc`, those in `keys`, `format_ok`, `truncated`, `timeout`, `error`,
    `pred`: all zeros and `error` = 1 where the function raises. `score` is
    (1 - format_bonus) * value + format_bonus * format_ok, between 0 and 1, where the function has
    a keyword argument `format_bonus`, and `value` where it has none. A reward that the function
    returns in place of an outcome is taken over, with 0 for the keys that it lacks.

    Args:
        alarm: counts the responses that could not be scored.
        keys: the task's own numbers, `Outcome.parts`.
    """
    ends = ("format_ok", "truncated", "timeout", "error")

    def decorate(function: Callable[P, Outcome | Reward]) -> Callable[P, Reward]:
        signature = inspect.signature(function)
        has_bonus = "format_bonus" in signature.parameters

        @functools.wraps(function)
        def compute_score(*args: P.args, **kwargs: P.kwargs) -> Reward:
            failure = ""
            bonus = kwargs.get("format_bonus", 0.0) if has_bonus else 0.0
            try:
                share = real("format_bonus", bonus, 0, 1)
                outcome = function(*args, **kwargs)
                if not isinstance(outcome, Outcome):
                    reward = {key: outcome.get(key, 0.0) for key in ("score", "acc", *keys, *ends)}
                    reward["pred"] = outcome["pred"]
                    alarm.count("")
                    return reward
                total = (1 - share) * outcome.value + share * outcome.format_ok
                total = min(max(float(total), 0.0), 1.0)
                if outcome.timeout:
                    failure = "its answer took longer than the time limit to check"
            except Exception as error:
                outcome, total = Outcome(), 0.0
                failure = f"{type(error).__name__}: {str(error)[:200]}"
            alarm.count(failure)
            return {
                "score": total,
                "acc": float(outcome.correct),
                **{key: float(outcome.parts.get(key, 0.0)) for key in keys},
                "format_ok": float(outcome.format_ok),
                "truncated": float(outcome.truncated),
                "timeout": float(outcome.timeout),
                "error": float(bool(failure) and not outcome.timeout),
                "pred": encodable(outcome.pred[:MAX_PRED_CHARS]),  # verl writes it to a UTF-8 file
            }

        # The function's own, but for what it returns.
        setattr(compute_score, "__signature__", signature.replace(return_annotation=Reward))
        compute_score.__annotations__ = {**function.__annotations__, "return": Reward}
        return compute_score

    return decorate
