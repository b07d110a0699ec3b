"""Whether a program's output, or the value that it returned, is the expected one.

As in LiveCodeBench's checker, but for a tolerance where a decimal is expected.
"""

import json
import math
import re
from decimal import Decimal

TOLERANCE = 1e-6
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
# Longer than this is wrong, and not worth the time to compare.
_SLACK_BYTES, _SLACK_FACTOR = 1 << 16, 8


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
