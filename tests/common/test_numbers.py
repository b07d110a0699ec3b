import argparse
import math

import numpy as np
import pytest
import torch

from verl_msgrpo.common.numbers import finite, integer, integer_argument, real, real_argument


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (True, 1.0), (2.5, 2.5), ("1", None), (None, None), (math.nan, None)],
)
def test_finite(value, expected):
    assert finite(value) == expected


def test_finite_has_a_range():
    assert finite(math.inf) is finite(10**400) is finite([1]) is None


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), torch.tensor(3)])
def test_integer_takes_whole_numbers(value):
    number = integer("k", value, 1, 3)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize("value", [True, "3", None, 2.5, math.nan, math.inf, 0, 4, np.ones(2), [3]])
def test_integer_refuses(value):
    with pytest.raises(ValueError, match=r"^k: allowed is an integer from 1 to 3, got '"):
        integer("k", value, 1, 3)


def test_the_message_is_short_however_long_the_value():
    for value in (10**5000, "x" * 5000, [[0]] * 5000):
        with pytest.raises(ValueError, match="allowed is") as error:
            integer("k", value, 1, 3)
        assert len(str(error.value)) < 140


@pytest.mark.parametrize("value", [True, "3", None, math.nan, math.inf, -0.1, 1.1, np.ones(2)])
def test_real_refuses(value):
    with pytest.raises(ValueError, match=r"^x: allowed is a number from 0 to 1, got '"):
        real("x", value, 0, 1)


def test_real_without_an_upper_limit_is_finite():
    assert real("x", 10**300, 0) == 1e300
    with pytest.raises(ValueError, match=r"^x: allowed is a finite number >= 0\.5, got '0\.25'"):
        real("x", 0.25, 0.5)


def test_real_without_any_limit_is_finite():
    assert real("x", -1e300, -math.inf) == -1e300
    with pytest.raises(ValueError, match=r"^x: allowed is a finite number, got '-inf'"):
        real("x", -math.inf, -math.inf)


@pytest.mark.parametrize("text", ["0", "x", "1.5", "", "9" * 5000])
def test_arguments(text):
    assert integer_argument(1)("7") == 7
    with pytest.raises(argparse.ArgumentTypeError, match=r"^allowed is an integer from 1 to 9, go"):
        integer_argument(1, 9)(text)


def test_real_arguments():
    assert real_argument(0)("1e-3") == 1e-3
    with pytest.raises(argparse.ArgumentTypeError, match=r"^allowed is a finite number >= 0, got"):
        real_argument(0)("nan")
