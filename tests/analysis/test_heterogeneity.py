"""V against going through all subgroups, and against its limit in large groups."""

from itertools import combinations
from statistics import fmean, pvariance, variance

import pytest
import torch

from verl_msgrpo.analysis.heterogeneity import heterogeneity, inverse_std_second_order

GROUPS = [[0.3, -1.2, 2.0, 0.7, -0.4], [1.0, 0.0, 0.0, 0.0, 0.0], [5.0, 6.0, 6.0, 9.0, 1e3]]


@pytest.mark.parametrize("scale", range(2, 6))
def test_against_enumeration(scale):
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


def test_no_unit_and_no_origin_and_nothing_to_say_of_equal_rewards():
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
