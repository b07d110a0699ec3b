"""What all rewards share: the same keys on every path, and settings that cannot be meant.

Settings that would make a reward hang, or score every response alike, are said at once.
"""

import inspect
import json
import logging
import math
import pickle

import pytest

pytest.importorskip("math_verify")

from verl_msgrpo.rewards import code_tests, math_answer, multiple_choice, search_qa
from verl_msgrpo.rewards.outcome import Alarm, Outcome, Reward, scored

SUM = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
TESTS = json.dumps({"tests": [{"input": "1 2", "output": "3", "testtype": "stdin"}]})
RIGHT = {
    code_tests: (SUM, TESTS),
    math_answer: ("\\boxed{\\frac12}", "0.5"),  # takes a process of the pool
    multiple_choice: ("\\boxed{A}", "A"),
    search_qa: ("<answer>Dune</answer>", "Dune"),
}


@pytest.fixture(autouse=True)
def alarms_that_have_said_nothing():
    for module in RIGHT:
        module._ALARM.forget()


def score(module, **settings):
    return module.compute_score("x", *RIGHT[module], **settings)


@pytest.mark.parametrize(
    ("module", "setting", "bad"),
    [
        *((module, "format_bonus", bad) for module in RIGHT for bad in (-0.1, 2, math.nan, "x")),
        *((code_tests, "timeout_s", bad) for bad in (0, -5, math.nan, math.inf, True)),
        *((math_answer, "timeout_s", bad) for bad in (0, -5, math.nan)),
        *((module, "workers", bad) for module in (code_tests, math_answer) for bad in (0, -1)),
        (code_tests, "memory_limit_mb", 0),
        (search_qa, "max_answers", 0),
        (search_qa, "max_answers", 1.5),
    ],
)
def test_bad_setting(module, setting, bad, caplog):
    with caplog.at_level(logging.WARNING, "verl_msgrpo.rewards"):
        reward = score(module, **{setting: bad})
    assert (reward["score"], reward["acc"], reward["error"]) == (0, 0, 1)
    (record,) = caplog.records
    assert f"{setting}: allowed is a" in record.getMessage()
    assert record.getMessage().endswith(f", got {str(bad)!r}")


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (code_tests, {"memory_limit_mb": code_tests.SMALLEST_MB, "workers": 1}),
        (math_answer, {"workers": 1}),
        *((module, {"format_bonus": share}) for module in RIGHT for share in (0, 1)),
        (search_qa, {"max_answers": 1}),
    ],
)
def test_the_ends_of_the_ranges_are_allowed(module, settings):
    reward = score(module, **settings)
    assert (reward["score"], reward["error"], reward["timeout"]) == (1, 0, 0)


TEST_ALARM = Alarm("test")


@scored(TEST_ALARM, keys=("part",))
def with_bonus(solution: str, *, format_bonus: float = 0.0, unused: int = 3) -> Outcome | Reward:
    """Documented."""
    if solution == "raises":
        raise ValueError("x" * 1000)
    if solution == "another's":
        return {"score": 0.25, "acc": 1.0, "other": 1.0, "pred": "7"}
    return Outcome(value=0.5, correct=True, format_ok=True, pred=solution, parts={"part": 0.125})


@scored(TEST_ALARM)
def without_bonus(solution: str, **kwargs: float) -> Outcome:
    return Outcome(value=float(solution), timeout=solution == "0", format_ok=True)


ENDS = ("format_ok", "truncated", "timeout", "error", "pred")


def test_scored_makes_a_reward_of_an_outcome():
    keys = ("score", "acc", "part", *ENDS)
    right = dict(zip(keys, (0.6, 1.0, 0.125, 1.0, 0.0, 0.0, 0.0, "7"), strict=True))
    assert with_bonus("7", format_bonus=0.2) == pytest.approx(right)
    assert list(with_bonus("7")) == list(keys)
    assert with_bonus("a\ud800")["pred"] == "a?"
    nothing = dict.fromkeys(keys, 0.0) | {"pred": ""}
    assert with_bonus("raises") == nothing | {"error": 1.0}
    assert with_bonus("7", format_bonus=1.5) == nothing | {"error": 1.0}
    assert with_bonus() == nothing | {"error": 1.0}  # not even its arguments can make it raise
    assert with_bonus("another's") == nothing | {"score": 0.25, "acc": 1.0, "pred": "7"}


def test_a_function_without_a_bonus_has_none():
    assert without_bonus("0.5", format_bonus=1)["score"] == 0.5
    assert without_bonus("3")["score"] == 1
    assert without_bonus("-3")["score"] == 0
    assert without_bonus("0") | {"pred": 0} == {
        **dict.fromkeys(("score", "acc", *ENDS), 0.0),
        "format_ok": 1.0,
        "timeout": 1.0,
    }


def test_the_signature_is_the_function_s_own():
    signature = inspect.signature(with_bonus)
    assert list(signature.parameters) == ["solution", "format_bonus", "unused"]
    assert signature.return_annotation == Reward
    assert inspect.get_annotations(with_bonus)["return"] == Reward
    assert with_bonus.__doc__ == "Documented."
    assert pickle.loads(pickle.dumps(with_bonus)) is with_bonus
    for module in RIGHT:
        given = list(inspect.signature(module.compute_score).parameters)
        assert given[:4] == ["data_source", "solution_str", "ground_truth", "extra_info"]
        assert module.compute_score.__module__ == module.__name__


def test_the_alarm_says_the_first_failure_and_a_high_share(caplog):
    def score(failing):
        for number in range(Alarm.window):
            with_bonus("raises" if number < failing else "7")
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    TEST_ALARM.forget()
    few, many = Alarm.window // 20, Alarm.window // 10
    with caplog.at_level(logging.WARNING, "verl_msgrpo.rewards"):
        (first,) = score(few)
        assert "test: a response could not be scored: ValueError: xxx" in first
        assert len(first) < 300
        again, share = score(many)
        assert again == first
        assert f"test: {many} of the last {Alarm.window} responses could not be scored" in share
        assert score(0) == []
