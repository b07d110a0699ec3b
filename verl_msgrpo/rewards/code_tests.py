r"""Programming (LiveCodeBench and sets like it): a Python program, run on tests.

The rules:

- The program is the last closed Python block of the final turn, between lines of ``` or ~~~; a
  block without a label counts only where none is labelled as Python. Blocks in observations never
  count. `pred` is its text.
- A test is passed if the program prints, or its function returns, what is expected, and ends
  without an exception and with exit code 0. That is compared as in LiveCodeBench's checker, but for
  a tolerance where a decimal is expected, see `same_output` and `same_value`. All tests count,
  those too that it did not come to. `acc` is 1 if all are passed; `passed` is their share. The
  program is never told what is expected, so nothing that it can print or write would make it pass.
- All tests together may take `timeout_s`. Whatever the program has not passed by then it has
  failed, `timeout` = 1. LiveCodeBench's own checker gives each test 6 s.
- It runs in a sandbox of its own, see `code.isolation`, on Python as this process's, with the
  installed packages: memory limited, output to 16 MiB a test, processes to 14, files to 256 MiB. In
  a process of its own for each test; none is left when the response is scored. Without bubblewrap
  no program is run, `error` = 1, unless `isolation` is "limits".
- With `sandbox_fusion_url` the programs run on that server instead. verl does not hand its own
  setting on to a custom reward function; `reward_fns/code_tests.py` shows how to.

The tests come from the ground truth, see `code.cases`. A row without tests that can be read has
`error` = 1.
"""

import json
import math
import os
import re
import threading
from collections.abc import Sequence
from decimal import Decimal

from verl_msgrpo.common.numbers import integer, real
from verl_msgrpo.rewards.code import fusion, runner
from verl_msgrpo.rewards.code.cases import Suite, read_cases
from verl_msgrpo.rewards.code.isolation import (
    MEMORY_MB,
    choose,
    launch,
    warn_without_bubblewrap,
)
from verl_msgrpo.rewards.code.runner import Program, prelude
from verl_msgrpo.rewards.outcome import Alarm, Outcome, scored
from verl_msgrpo.rewards.response import OBSERVATION_TAGS, final_turn, is_cut_off, python_blocks

WORKERS = min(4, os.cpu_count() or 1)
SHORTEST_S = 0.1
SMALLEST_MB = 16  # with less Python does not start
_KEYS = ("passed",)
_ALARM = Alarm("code_tests")
TOLERANCE = 1e-6
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
# Longer than this is wrong, and not worth the time to compare.
_SLACK_BYTES, _SLACK_FACTOR = 1 << 16, 8

warn_without_bubblewrap()


@scored(_ALARM, keys=_KEYS)
def compute_score(
    data_source: object,
    solution_str: object,
    ground_truth: object,
    extra_info: object = None,
    *,
    partial: bool = False,
    format_bonus: float = 0.0,
    timeout_s: float = 10.0,
    memory_limit_mb: int = MEMORY_MB,
    isolation: str = "auto",
    workers: int = WORKERS,
    sandbox_fusion_url: str | None = None,
    concurrent_semaphore: fusion.Semaphore | None = None,
    observation_tags: Sequence[str] = OBSERVATION_TAGS,
    **_: object,
) -> Outcome:
    """Scores one response; never raises.

    Args:
        data_source: not looked at.
        solution_str: the decoded response, observations included.
        ground_truth: the tests, see `code.cases`.
        extra_info: may say `truncated`, and `fn_name` where the ground truth does not.
        partial: whether the score is the share of tests passed, or else `acc`.
        format_bonus: share of the score for a program in a block, right or wrong (0 to 1).
        timeout_s: seconds that the program may take for all tests.
        memory_limit_mb: MiB that each of its processes may address, and all of them may use.
        isolation: "auto" or "bubblewrap", or "limits", which is not safe.
        workers: programs that run at once, per process that scores; fixed by the first call.
        sandbox_fusion_url: a Sandbox Fusion server, to run programs there.
        concurrent_semaphore: limits the requests to that server.
        observation_tags: names of the tags around observations.

    Returns:
        `score` = (1 - format_bonus) * (passed if partial else acc) + format_bonus * format_ok,
        `acc`, `passed`, `format_ok`, `truncated`, `timeout`, `error`, `pred`.
    """
    limit_s = real("timeout_s", timeout_s, SHORTEST_S)
    memory_mb = integer("memory_limit_mb", memory_limit_mb, SMALLEST_MB)
    size = integer("workers", workers, 1)
    text = final_turn(solution_str, observation_tags)
    blocks = python_blocks(text)
    source = blocks.last or ""
    truncated = blocks.left_open or is_cut_off(text, extra_info)
    if not source.strip():
        return Outcome(truncated=truncated)
    suite = read_cases(ground_truth, extra_info)
    inputs = [case.input for case in suite.cases]
    passed = [False] * len(inputs)

    def judge(number: int, output: bytes) -> None:
        passed[number] = is_right(suite, number, output)

    program = Program(source, suite.function, prelude(source))
    if sandbox_fusion_url:
        url, semaphore = sandbox_fusion_url, concurrent_semaphore
        end = fusion.run(url, program, inputs, judge, limit_s, memory_mb, semaphore)
    else:
        with _places(size):
            sandbox = launch(choose(isolation), memory_mb << 20)
            end = runner.run(sandbox, program, inputs, judge, limit_s)
    share, correct = sum(passed) / len(passed), all(passed)
    return Outcome(
        value=share if partial else float(correct),
        correct=correct,
        format_ok=True,
        pred=source,
        truncated=truncated,
        timeout=end.timeout and not correct,
        parts={"passed": share},
    )


def is_right(suite: Suite, number: int, output: bytes) -> bool:
    """Whether a test is passed by what the program printed, or by the value that it returned."""
    expected = suite.cases[number].output
    if not suite.function:
        return same_output(output, expected)
    value = json.loads(expected)
    return same_value(output, value) or (suite.wrapped and same_value(output, [value]))


def same_output(output: bytes, expected: str) -> bool:
    """Whether the lines are equal, without blanks at their ends and blank lines around them.

    Where they differ in numbers alone, those must have equal values; where one with a decimal
    point or an exponent is expected, up to 1e-6 (absolute, and relative to it).
    """
    if _far_too_long(output, expected):
        return False
    lines, expected_lines = _lines(output.decode("utf-8", "replace")), _lines(expected)
    return len(lines) == len(expected_lines) and all(
        line == right or _same_tokens(line.split(), right.split())
        for line, right in zip(lines, expected_lines, strict=True)
    )


def same_value(returned: bytes, expected: object) -> bool:
    """Whether JSON holds the expected value: numbers by value, floats up to 1e-6.

    A tuple is written as a list is, so it equals one.
    """
    if _far_too_long(returned, json.dumps(expected)):
        return False
    try:
        return _same(json.loads(returned), expected)
    except (ValueError, RecursionError):
        return False


def _same(value: object, expected: object) -> bool:
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            _same(value[key], expected[key]) for key in value
        )
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return value == expected or (
            isinstance(value, float) | isinstance(expected, float) and _close(value, expected)
        )
    return value == expected


def _same_tokens(tokens: list[str], expected: list[str]) -> bool:
    return len(tokens) == len(expected) and all(
        _NUMBER.fullmatch(token) and _NUMBER.fullmatch(right) and _same_number(token, right)
        for token, right in zip(tokens, expected, strict=True)
    )


def _same_number(number: str, expected: str) -> bool:
    if Decimal(number) == Decimal(expected):
        return True
    whole = expected.lstrip("+-").isdigit()
    return not whole and _close(float(number), float(expected))


def _close(number: float, expected: float) -> bool:
    try:
        # isclose's own relative tolerance is to the larger one, which a program may choose.
        return math.isfinite(number) and abs(number - expected) <= TOLERANCE * max(1, abs(expected))
    except OverflowError:
        return False


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _far_too_long(output: bytes, expected: str) -> bool:
    return len(output) > _SLACK_FACTOR * len(expected) + _SLACK_BYTES


_shared_places: threading.BoundedSemaphore | None = None
_lock = threading.Lock()


def _places(count: int) -> threading.BoundedSemaphore:
    """The places for programs in this process; the first call alone chooses how many."""
    global _shared_places
    with _lock:
        if _shared_places is None:
            _shared_places = threading.BoundedSemaphore(count)
        return _shared_places


def _forget_places() -> None:
    """A forked process has none of the threads that would give a place back."""
    global _shared_places, _lock
    _shared_places, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_places)
