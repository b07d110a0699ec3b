"""A reward's result: the same keys on every path, whatever happens inside."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verl_msgrpo.rewards.settings import check_format_bonus

MAX_PRED_CHARS = 10_000
Reward = dict[str, float | str]

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


def score_safely(
    score: Callable[[], Outcome], *, keys: Sequence[str], alarm: Alarm, format_bonus: float
) -> Reward:
    """The reward dict of `score()`; all zeros and `error` = 1 where it raises.

    So they are where `format_bonus` is no share.

    `score` = (1 - format_bonus) * value + format_bonus * format_ok, between 0 and 1. The keys are
    always `score`, `acc`, those in `keys`, `format_ok`, `truncated`, `timeout`, `error`, `pred`.
    """
    failure = ""
    try:
        check_format_bonus(format_bonus)
        outcome = score()
        total = (1 - format_bonus) * outcome.value + format_bonus * outcome.format_ok
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
        # verl writes it to a UTF-8 file, which no lone surrogate survives.
        "pred": outcome.pred[:MAX_PRED_CHARS].encode("utf-8", "replace").decode(),
    }
