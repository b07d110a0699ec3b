import numpy as np
import pytest

from verl_msgrpo.evaluation.bootstrap import intervals

Z = 1.959964  # of 95 %


def test_agrees_with_the_normal_interval_of_a_mean():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=(400, 1))
    low, high = intervals(values, resamples=20_000)[:, 0]
    half = Z * values.std() / 20
    # 20 000 resamples know a quantile to about 2 % of the half width.
    assert low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.05 * half)


def test_covers_the_truth_as_often_as_it_says():
    # 400 experiments as 400 columns of independent accuracies, true mean 0.7.
    values = (np.random.default_rng(2).random((100, 400)) < 0.7).astype(float)
    low, high = intervals(values, resamples=1000)
    covered = ((low <= 0.7) & (high >= 0.7)).mean()
    normal = np.abs(values.mean(axis=0) - 0.7) <= Z * values.std(axis=0) / 10
    # The share of 400 experiments has a standard deviation of 1.1 %.
    assert covered == pytest.approx(0.95, abs=0.035)
    assert covered == pytest.approx(normal.mean(), abs=0.02)


def test_a_prompt_without_a_value_is_left_out_of_its_column_only():
    values = np.random.default_rng(3).normal(size=(300, 1))
    padded = np.concatenate([values, np.full((100, 1), np.nan)])
    both = np.concatenate([padded, np.ones((400, 1))], axis=1)
    result = intervals(both, resamples=4000)
    np.testing.assert_array_equal(result[:, 1], [1.0, 1.0])
    np.testing.assert_allclose(result[:, 0], intervals(values, resamples=4000)[:, 0], atol=0.02)


def test_equal_values_have_an_interval_without_width():
    np.testing.assert_array_equal(intervals(np.full((30, 1), 0.1)), [[0.1], [0.1]])


def test_one_prompt_has_no_interval():
    assert np.isnan(intervals(np.array([[1.0], [np.nan]]))).all()
    assert np.isnan(intervals(np.array([[1.0]]))).all()


def test_the_seed_decides():
    values = np.random.default_rng(4).normal(size=(50, 2))
    np.testing.assert_array_equal(intervals(values, seed=5), intervals(values, seed=5))
    assert (intervals(values, seed=5) != intervals(values, seed=6)).all()


def test_many_prompts_are_resampled_in_parts(monkeypatch):
    monkeypatch.setattr("verl_msgrpo.evaluation.bootstrap.CELLS_AT_ONCE", 700)
    values = np.random.default_rng(5).normal(size=(100, 1))
    low, high = intervals(values)[:, 0]
    half = Z * values.std() / 10
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)
