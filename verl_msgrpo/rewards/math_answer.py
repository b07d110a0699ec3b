r"""Mathematics (AIME, DAPO-Math, MATH): the answer in `\boxed{}`.

The rules:

- Strict, the default: the answer is the `\boxed{}` (or `\fbox{}`) of the final turn that closes
  last. Boxes in observations never count, nor do earlier boxes. `lenient=True` also takes what
  follows the last "answer is" or "answer:" where there is no box; a number elsewhere never counts.
- It is right if it equals an accepted answer, by math-verify and the rules of `math.equal`. Both
  are read as a whole or not at all. "0,1" is a list without order; `x<3` equals `(-\infty,3)`;
  "28\%" equals 28 and 0.28.
- A decimal has to be exact, or to have at least six places and equal the right answer rounded to
  its places. Where the right answer is irrational, 15 significant digits are enough, which is what
  a double holds.
- How it is written does not count: fonts, colours, blanks, marks at the end, `1,200` for 1200,
  Unicode's mathematics, Python's `sqrt(3)` and `2**10` (`math.appearance`). "1,200" is a list too.
- A unit at the very end may be missing, but not be another one: a noun phrase in `\text{}` or in
  plain words, a degree sign, per cent, a currency (`math.text`). Words that say more than a unit
  does are no unit ("or 13", "is wrong"), and "million" and "dozen" multiply. A base is a part of
  the value where the right answer has none.
- It has to be evaluated already; `math.evaluated` says what that means. Equal forms of an
  expression in variables are one value, factored or not.
- A ground truth that has several boxes, or does not parse as a whole, is an error of the row. Only
  the very same text is right then, in the second case.
- A check that takes longer than `timeout_s` is stopped and the answer wrong, `timeout` = 1. So is
  an answer of more than 2,000 characters, unchecked.
"""

import re
from collections.abc import Sequence
from importlib.util import find_spec

from verl_msgrpo.common.numbers import integer, real
from verl_msgrpo.rewards.ground_truth import GroundTruthError, accepted_answers
from verl_msgrpo.rewards.math.pool import WORKERS, Verdict, shared_pool
from verl_msgrpo.rewards.outcome import Alarm, Outcome, scored
from verl_msgrpo.rewards.response import (
    OBSERVATION_TAGS,
    boxes,
    final_turn,
    is_cut_off,
    stated_answer,
)

if find_spec("math_verify") is None:
    raise ImportError("math_answer needs math-verify: pip install 'verl-msgrpo[rewards]'")

MAX_ANSWER_CHARS = 2000
SHORTEST_S = 0.01
_INTEGER = re.compile(r"[+-]?(?:\d{1,40}|\d{1,3}(?:,\d{3}){1,12})")
_ALARM = Alarm("math_answer")


@scored(_ALARM)
def compute_score(
    data_source: object,
    solution_str: object,
    ground_truth: object,
    extra_info: object = None,
    *,
    lenient: bool = False,
    format_bonus: float = 0.0,
    timeout_s: float = 5.0,
    workers: int = WORKERS,
    observation_tags: Sequence[str] = OBSERVATION_TAGS,
    **_: object,
) -> Outcome:
    r"""Scores one response; never raises.

    Args:
        data_source: not looked at.
        solution_str: the decoded response, observations included.
        ground_truth: one answer or several, LaTeX or plain, with or without `$` or `\boxed{}`.
        extra_info: may say `truncated`.
        lenient: whether a statement counts where there is no box.
        format_bonus: share of the score for a box that is not empty, right or wrong (0 to 1).
        timeout_s: seconds that the check of one answer may take.
        workers: processes that check, per process that scores; fixed by the first call.
        observation_tags: names of the tags around observations.

    Returns:
        `score` = (1 - format_bonus) * acc + format_bonus * format_ok, `acc`, `format_ok`,
        `truncated`, `timeout`, `error`, `pred`.
    """
    limit_s = real("timeout_s", timeout_s, SHORTEST_S)
    size = integer("workers", workers, 1)
    golds = _golds(ground_truth)
    text = final_turn(solution_str, observation_tags)
    found = boxes(text)
    boxed = found.last.content if found.last else ""
    stated = stated_answer(text) if lenient and not found.last and not found.left_open else ""
    answer = boxed or stated
    verdict = _check(golds, answer, limit_s, size) if answer else Verdict(False)
    if verdict.error:
        raise RuntimeError(verdict.error)
    return Outcome(
        value=float(verdict.equal),
        correct=verdict.equal,
        format_ok=bool(boxed),
        pred=answer,
        truncated=found.left_open or is_cut_off(text, extra_info),
        timeout=verdict.timeout,
    )


def unreadable(ground_truth: object, timeout_s: float = 5.0) -> str:
    """Why a ground truth cannot be compared with answers; "" if it can.

    Raises:
        GroundTruthError: it holds no answer, or one that is no single value.
    """
    for gold in _golds(ground_truth):
        if _plain_integer(gold) is None:
            verdict = shared_pool(WORKERS).check([gold], "", timeout_s)
            if verdict.timeout:
                return f"takes longer than {timeout_s:g} s to read"
            if verdict.error:
                return verdict.error
    return ""


def _golds(ground_truth: object) -> list[str]:
    return [_unboxed(gold) for gold in accepted_answers(ground_truth)]


def _unboxed(gold: str) -> str:
    boxed = boxes(gold)
    if len(different := set(boxed.outer)) > 1:
        raise GroundTruthError(
            f"the ground truth has {len(different)} boxes, it is no single value"
        )
    return boxed.last.content if boxed.last else gold


def _check(golds: list[str], answer: str, timeout_s: float, workers: int) -> Verdict:
    """Compares in this process where that takes no algebra."""
    if answer in golds:
        return Verdict(True)
    if len(answer) > MAX_ANSWER_CHARS:
        return Verdict(False)
    number, right = _plain_integer(answer), [_plain_integer(gold) for gold in golds]
    if number is not None and None not in right:
        return Verdict(number in right)
    return shared_pool(workers).check(golds, answer, timeout_s)


def _plain_integer(text: str) -> int | None:
    """The value of an answer that is an integer and nothing else, with or without commas."""
    text = text.strip().strip("$").rstrip(".,;\\ \n").strip()
    return int(text.replace(",", "")) if _INTEGER.fullmatch(text) else None
