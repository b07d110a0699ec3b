"""Curves, intervals and final numbers, against values worked out by hand."""

import math

import pytest

from verl_msgrpo.report.curves import curve
from verl_msgrpo.report.final_numbers import final_value
from verl_msgrpo.report.intervals import mean_over_seeds, paired_difference

# Published tables of Student's t, two-sided 95 %.
T_1, T_4 = 12.706204736, 2.776445105


def test_curve_takes_the_steps_that_all_seeds_have():
    found = curve([{1: 1.0, 2: 2.0, 3: 9.0}, {1: 3.0, 2: 2.0}, {0: 7.0, 1: 5.0, 2: 5.0}])
    assert found.steps.tolist() == [1, 2]
    assert found.mean.tolist() == [3.0, 3.0]
    assert found.low.tolist() == [1.0, 2.0]
    assert found.high.tolist() == [5.0, 5.0]


def test_curve_of_seeds_without_a_common_step_is_empty():
    assert len(curve([{1: 1.0}, {2: 1.0}]).mean) == 0


def test_interval_of_five():
    # 1 .. 5: variance 10 / 4.
    found = mean_over_seeds([1.0, 2.0, 3.0, 4.0, 5.0])
    half = T_4 * math.sqrt(2.5 / 5)
    assert (found.value, found.count) == (3.0, 5)
    assert (found.low, found.high) == (pytest.approx(3 - half), pytest.approx(3 + half))


def test_one_value_has_no_interval_and_equal_ones_no_width():
    assert math.isnan(mean_over_seeds([2.0]).low)
    assert mean_over_seeds([2.0, 2.0, 2.0]).low == 2.0


def test_difference_pairs_the_common_seeds():
    # Pairs: seed 1: 4, seed 2: 2; seeds 3 and 4 have no partner.
    found = paired_difference({"1": 1.0, "2": 5.0, "3": 99.0}, {"4": -99.0, "2": 7.0, "1": 5.0})
    half = T_1 * math.sqrt(2.0 / 2)
    assert (found.value, found.count) == (3.0, 2)
    assert (found.low, found.high) == (pytest.approx(3 - half), pytest.approx(3 + half))
    assert paired_difference({"1": 1.0}, {"2": 1.0}) is None


def test_final_value_is_a_validations_last_and_the_mean_of_ten_steps_else():
    series = {step: float(step) for step in range(1, 21)}
    assert final_value("val-core/task/acc/mean@1", series) == 20.0
    assert final_value("critic/score/mean", series) == pytest.approx(15.5)
