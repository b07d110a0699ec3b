"""The expansion against its definition, subgroup by subgroup, and against what it approximates."""

from itertools import combinations
from statistics import fmean, pvariance, stdev, variance

import numpy as np
import pytest
import torch

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages
from verl_msgrpo.analysis.rescaling import undivided_rescaling
from verl_msgrpo.analysis.taylor import (
    SubsetMoments,
    heterogeneity,
    inverse_std_second_order,
    taylor_advantages,
)
from verl_msgrpo.estimator.scales import weighted_scales

GROUP = [0.3, -1.2, 2.0, 0.7, -0.4, 0.7]
COEFFICIENTS = [1, -1 / 2, 3 / 8, -5 / 16, 35 / 128]  # of (1 + d)^(-1/2)


def by_definition(group, scale, order):
    result = []
    for i in range(len(group)):
        terms = []
        for members in combinations(range(len(group)), scale):
            if i in members:
                subgroup = [group[j] for j in members]
                excess = variance(subgroup) / variance(group) - 1
                series = sum(COEFFICIENTS[m] * excess**m for m in range(order + 1))
                terms.append((group[i] - fmean(subgroup)) / stdev(group) * series)
        result.append(fmean(terms))
    return result


@pytest.mark.parametrize("scale", [2, 3, 5, 6])
@pytest.mark.parametrize("order", range(5))
def test_against_enumeration(scale, order):
    rewards = torch.tensor([GROUP, [0.5] * 6], dtype=torch.float64)
    found = taylor_advantages(rewards, ((scale, 1.0),), order)
    assert found[0].tolist() == pytest.approx(by_definition(GROUP, scale, order), abs=1e-11)
    assert found[1].tolist() == [0.0] * 6


def test_order_0_is_f_times_grpo():
    rewards = torch.tensor([GROUP], dtype=torch.float64)
    scales = weighted_scales(6, MSGRPOConfig())
    grpo = ms_grpo_advantages(rewards, MSGRPOConfig(scales=[6], epsilon=0.0))
    found = taylor_advantages(rewards, scales, 0)
    torch.testing.assert_close(found, undivided_rescaling(6, scales) * grpo)


def test_it_converges_at_large_scales_and_not_at_pairs():
    rewards = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 8)))

    def errors(scale):
        exact = ms_grpo_advantages(rewards, MSGRPOConfig(scales=[scale], epsilon=0.0))
        return [
            ((taylor_advantages(rewards, ((scale, 1.0),), order) - exact).norm() / exact.norm())
            for order in (0, 1, 2, 4)
        ]

    large = errors(6)
    assert large == sorted(large, reverse=True)
    assert large[2] < 0.03
    pairs = errors(2)
    assert pairs == sorted(pairs)
    assert pairs[2] > 1


def test_groups_too_large_to_enumerate():
    rewards = torch.from_numpy(np.random.default_rng(1).normal(size=(1, 64)))
    scale, drawn = 40, 20_000
    order = torch.from_numpy(np.random.default_rng(2).random((drawn, 63))).argsort(dim=1)
    others = rewards[0, 1:][order[:, : scale - 1]]
    subgroups = torch.cat([rewards[0, :1].expand(drawn, 1), others], dim=1)
    sample = (subgroups[:, 0] - subgroups.mean(dim=1)) / subgroups.std(dim=1)
    error = sample.std().item() / drawn**0.5
    found = taylor_advantages(rewards, ((scale, 1.0),), 2)[0, 0].item()
    assert found == pytest.approx(sample.mean().item(), abs=4 * error + 1e-4)


def test_refuses_other_orders():
    with pytest.raises(ValueError, match="order: allowed is 0 to 4, got 5"):
        taylor_advantages(torch.zeros(1, 4), ((2, 1.0),), 5)


# --- Heterogeneity of the subgroups ---------------------------------------------------------------

GROUPS = [[0.3, -1.2, 2.0, 0.7, -0.4], [1.0, 0.0, 0.0, 0.0, 0.0], [5.0, 6.0, 6.0, 9.0, 1e3]]


@pytest.mark.parametrize("scale", range(2, 6))
def test_heterogeneity_against_enumeration(scale):
    found = heterogeneity(torch.tensor(GROUPS, dtype=torch.float64), scale)
    for group, v in zip(GROUPS, found.tolist(), strict=True):
        inside = [variance(subgroup) / variance(group) for subgroup in combinations(group, scale)]
        assert fmean(inside) == pytest.approx(1)
        assert v == pytest.approx(pvariance(inside), abs=1e-12)


@pytest.mark.parametrize("scale", [2, 3, 10])
def test_large_groups_know_it_from_the_kurtosis(scale):
    # The variance of a sample variance: (kurtosis - (n - 3) / (n - 1)) / n. Uniform: 1.8.
    rewards = torch.linspace(0, 1, 20_001, dtype=torch.float64)[None]
    expected = (1.8 - (scale - 3) / (scale - 1)) / scale
    assert heterogeneity(rewards, scale).item() == pytest.approx(expected, rel=1e-3)


def test_heterogeneity_has_neither_unit_nor_origin_and_is_0_for_equal_rewards():
    rewards = torch.tensor([GROUPS[0], [0.7] * 5], dtype=torch.float64)
    first, equal = heterogeneity(rewards, 3).tolist()
    assert heterogeneity(1e6 + 1e-3 * rewards, 3)[0].item() == pytest.approx(first, rel=1e-6)
    assert equal == 0


def test_mean_inverse_std_where_the_subgroups_differ_little():
    # Two values of +-1 with a small disturbance: all but the pairs' spreads are near the group's.
    group = [1.0, -1.0, 1.1, -0.9, 0.9, -1.1, 1.0, -1.0]
    exact = [(variance(group) / variance(s)) ** 0.5 for s in combinations(group, 7)]
    found = inverse_std_second_order(torch.tensor([group], dtype=torch.float64), 7).item()
    assert found - 1 == pytest.approx(fmean(exact) - 1, rel=0.05)
    assert found > 1


# --- Moments of sums over subsets -----------------------------------------------------------------

VALUES = [0.3, -1.2, 2.0, 0.7, -0.4, 1.1]


@pytest.mark.parametrize("size", range(7))
@pytest.mark.parametrize(("sums", "squares"), [(0, 0), (1, 0), (2, 1), (5, 0), (1, 2), (0, 2)])
def test_moments_against_enumeration(size, sums, squares):
    subsets = list(combinations(VALUES, size))
    total = sum(sum(s) ** sums * sum(x * x for x in s) ** squares for s in subsets)
    powers = torch.tensor([[x**e for x in VALUES] for e in range(6)], dtype=torch.float64)
    found = SubsetMoments(powers.sum(dim=1), len(VALUES)).mean(size, sums, squares)
    assert found.item() == pytest.approx(total / len(subsets), rel=1e-12, abs=1e-12)
