"""Intervals against closed forms and published tables, and against scipy's own."""

import math

import numpy as np
import pytest

from verl_msgrpo.evaluation.intervals import (
    bootstrap_intervals,
    mean_over_seeds,
    paired_difference,
)

Z = 1.959964  # of 95 %
# Published tables of Student's t, two-sided 95 %.
T_1, T_4 = 12.706204736, 2.776445105

# --- Bootstrap, over prompts ----------------------------------------------------------------------


def test_agrees_with_the_normal_interval_of_a_mean():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=(400, 1))
    low, high = bootstrap_intervals(values, resamples=20_000)[:, 0]
    half = Z * values.std() / 20
    # 20 000 resamples know a quantile to about 2 % of the half width.
    assert low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.05 * half)


def test_covers_the_truth_as_often_as_it_says():
    # 400 experiments as 400 columns of independent accuracies, true mean 0.7.
    values = (np.random.default_rng(2).random((100, 400)) < 0.7).astype(float)
    low, high = bootstrap_intervals(values, resamples=1000)
    covered = ((low <= 0.7) & (high >= 0.7)).mean()
    normal = np.abs(values.mean(axis=0) - 0.7) <= Z * values.std(axis=0) / 10
    # The share of 400 experiments has a standard deviation of 1.1 %.
    assert covered == pytest.approx(0.95, abs=0.035)
    assert covered == pytest.approx(normal.mean(), abs=0.02)


def test_a_prompt_without_a_value_is_left_out_of_its_column_only():
    values = np.random.default_rng(3).normal(size=(300, 1))
    padded = np.concatenate([values, np.full((100, 1), np.nan)])
    both = np.concatenate([padded, np.ones((400, 1))], axis=1)
    result = bootstrap_intervals(both, resamples=4000)
    np.testing.assert_array_equal(result[:, 1], [1.0, 1.0])
    np.testing.assert_allclose(
        result[:, 0], bootstrap_intervals(values, resamples=4000)[:, 0], atol=0.02
    )


def test_equal_values_have_an_interval_without_width():
    np.testing.assert_array_equal(bootstrap_intervals(np.full((30, 1), 0.1)), [[0.1], [0.1]])


def test_one_prompt_has_no_interval():
    assert np.isnan(bootstrap_intervals(np.array([[1.0], [np.nan]]))).all()
    assert np.isnan(bootstrap_intervals(np.array([[1.0]]))).all()


def test_the_seed_decides():
    values = np.random.default_rng(4).normal(size=(50, 2))
    np.testing.assert_array_equal(
        bootstrap_intervals(values, seed=5), bootstrap_intervals(values, seed=5)
    )
    assert (bootstrap_intervals(values, seed=5) != bootstrap_intervals(values, seed=6)).all()


def test_many_prompts_are_resampled_in_parts(monkeypatch):
    monkeypatch.setattr("verl_msgrpo.evaluation.intervals.CELLS_AT_ONCE", 700)
    values = np.random.default_rng(5).normal(size=(100, 1))
    low, high = bootstrap_intervals(values)[:, 0]
    half = Z * values.std() / 10
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)


# --- Student, over seeds --------------------------------------------------------------------------


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


def test_agrees_with_scipy_on_any_sample():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(6).normal(size=12).tolist()
    found = mean_over_seeds(values)
    low, high = stats.t.interval(0.95, 11, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_bootstrap_agrees_with_scipys():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(7).exponential(size=60)
    ours = bootstrap_intervals(values[:, None], resamples=20_000)[:, 0]
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(8)
    ).confidence_interval
    # Each knows a quantile to about 2 % of the half width.
    half = (theirs.high - theirs.low) / 2
    assert ours.tolist() == pytest.approx(list(theirs), abs=0.08 * half)
