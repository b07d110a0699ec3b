"""The estimated error of few subgroups, against closed forms and against all subgroups."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages
from verl_msgrpo.estimator.advantages import compute_advantages
from verl_msgrpo.estimator.design_noise import _flat_design, design_errors, flat_advantages
from verl_msgrpo.estimator.diverse import advantages_over_design, subgroup_design
from verl_msgrpo.estimator.reference import reference_advantages
from verl_msgrpo.estimator.scales import weighted_scales


def flat_design(size, config):
    return _flat_design(size, weighted_scales(size, config), config)


@pytest.mark.parametrize("size", [2, 5, 8, 11])
@pytest.mark.parametrize("epsilon", [None, 0.0, 1e-3])
def test_all_scales_at_once_are_the_scales_one_by_one(size, epsilon):
    config = MSGRPOConfig(subgroups="diverse", subgroups_per_scale=5)
    rng = np.random.default_rng(size)
    values = np.concatenate([rng.normal(size=(4, size)), rng.integers(0, 3, (6, size)) / 10])
    scales = weighted_scales(size, config)
    chosen = [(subgroup_design(size, tau, 5, 0), weight) for tau, weight in scales]
    column = None if epsilon is None else torch.full((10,), epsilon, dtype=torch.float64)
    expected = advantages_over_design(torch.from_numpy(values), chosen, column)
    column = None if epsilon is None else np.full(10, epsilon)
    found = flat_advantages(values.T, flat_design(size, config), column)
    np.testing.assert_allclose(found.T, expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("few", [1, 3])  # three subgroups of two of four are not balanced
def test_relabelled_designs_average_to_all_subgroups(few):
    config = MSGRPOConfig(subgroups="diverse", subgroups_per_scale=few)
    rewards = np.array([0.3, -1.0, 2.5, 0.1])
    labels = np.array(list(itertools.permutations(range(4)))).T
    by_label = flat_advantages(rewards[labels], flat_design(4, config), np.full(24, 1e-6))
    average = np.zeros(4)
    np.add.at(average, labels, by_label / 24)
    assert average == pytest.approx(reference_advantages(rewards.tolist()), abs=1e-12)


def sums_of_squares(draw, size, config):
    """Of errors and advantages, over many batches of 32 groups: estimated, and by definition."""
    rng = np.random.default_rng(7)
    all_of_them = dataclasses.replace(config, preset=None, subgroups="all")
    estimated, exact = np.zeros(2), np.zeros(2)
    for _ in range(60):
        rewards = torch.from_numpy(draw(rng, (32, size)))
        index = torch.arange(32).repeat_interleave(size)
        _, workings = compute_advantages(rewards.flatten(), index, config)
        (block,), (scales,), (ours,) = workings[:3]
        estimated += np.multiply(design_errors(block, ours, scales, config), ours.numel())
        few, every = ms_grpo_advantages(rewards, config), ms_grpo_advantages(rewards, all_of_them)
        exact += [(few - every).square().sum(), few.square().sum()]
    return estimated, exact


def binary(rng, shape):
    return (rng.random(shape) < rng.random((shape[0], 1))).astype(float)


def normal(rng, shape):
    return rng.normal(size=shape)


def heavy_tail(rng, shape):
    return np.exp(2 * rng.normal(size=shape))


@pytest.mark.parametrize("draw", [binary, normal, heavy_tail])
def test_the_estimate_is_right_on_average(draw):
    estimated, exact = sums_of_squares(draw, 8, MSGRPOConfig(preset="paper"))
    assert estimated[0] == pytest.approx(exact[0], rel=0.1)
    assert estimated[1] == pytest.approx(exact[1], rel=0.02)


def test_a_perfect_matching_has_a_closed_form():
    """Everybody is compared with one other: A = (r_i - r_j) / 2; A' has the mean of the others.

    For independent rewards of variance 1, |A - A'|^2 is (1 - 1 / (G - 1)) / 4 on average, and
    |A|^2 is 1 / 2.
    """
    settings = {"scales": (2,), "subgroups": "diverse", "subgroups_per_scale": 1}
    config = MSGRPOConfig(**settings, normalize_by_std=False)
    # Binary, so that all blocks have the same unit.
    (error, size), _ = sums_of_squares(
        lambda rng, shape: rng.integers(0, 2, shape).astype(float), 8, config
    )
    # The relabellings are the same 32 in every batch, which leaves a few per cent.
    assert error / size == pytest.approx((1 - 1 / 7) / 4 / (1 / 2), rel=0.1)
