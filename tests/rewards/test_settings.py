"""Settings that would make a reward hang, or score every response alike, are said at once."""

import json
import logging
import math

import pytest

pytest.importorskip("math_verify")

from verl_msgrpo.rewards import code_tests, math_answer, multiple_choice, outcome, search_qa

SUM = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
TESTS = json.dumps({"tests": [{"input": "1 2", "output": "3", "testtype": "stdin"}]})
RIGHT = {
    code_tests: (SUM, TESTS),
    math_answer: ("\\boxed{\\frac12}", "0.5"),  # takes a process of the pool
    multiple_choice: ("\\boxed{A}", "A"),
    search_qa: ("<answer>Dune</answer>", "Dune"),
}


@pytest.fixture(autouse=True)
def alarm_that_has_said_nothing(monkeypatch):
    for module in RIGHT:
        monkeypatch.setattr(module, "_ALARM", outcome.Alarm(module.__name__))


def score(module, **settings):
    return module.compute_score("x", *RIGHT[module], **settings)


@pytest.mark.parametrize(
    ("module", "setting", "bad"),
    [
        *((module, "format_bonus", bad) for module in RIGHT for bad in (-0.1, 2, math.nan, "x")),
        *((code_tests, "timeout_s", bad) for bad in (0, -5, math.nan)),
        *((math_answer, "timeout_s", bad) for bad in (0, -5, math.nan)),
        *((module, "workers", bad) for module in (code_tests, math_answer) for bad in (0, -1)),
        (code_tests, "memory_limit_mb", 0),
        (search_qa, "max_answers", 0),
    ],
)
def test_bad_setting(module, setting, bad, caplog):
    with caplog.at_level(logging.WARNING, "verl_msgrpo.rewards"):
        reward = score(module, **{setting: bad})
    assert (reward["score"], reward["acc"], reward["error"]) == (0, 0, 1)
    (record,) = caplog.records
    assert f"{setting}={bad!r}: a " in record.getMessage()


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
