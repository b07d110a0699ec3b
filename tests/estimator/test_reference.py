"""The reference itself, against numbers that can be worked out by hand."""

from fractions import Fraction
from math import sqrt

import pytest

from verl_msgrpo.estimator.reference import (
    reference_advantages,
    scale_advantages,
    subgroup_advantage,
)


def test_one_subgroup():
    assert subgroup_advantage(1.0, [1.0, 0.0], epsilon=0) == pytest.approx(sqrt(0.5))
    assert subgroup_advantage(1.0, [1.0, 0.0], epsilon=0.5) == pytest.approx(
        0.5 / (sqrt(0.5) + 0.5)
    )
    assert subgroup_advantage(3.0, [1.0, 2.0, 3.0], normalize=False) == 1.0
    assert subgroup_advantage(0.9, [0.9] * 10, epsilon=0) == 0.0


def test_pairs_of_three():
    """Rewards 0, 0, 1: the pairs are {0, 0}, worth 0, and {0, 1} twice, worth sqrt(1/2) each."""
    pairs = [(0, 1), (0, 2), (1, 2)]
    half = sqrt(0.5)
    found = scale_advantages([0.0, 0.0, 1.0], pairs, epsilon=0)
    assert found == pytest.approx([-half / 2, -half / 2, half])


def test_both_scales_of_three():
    """With the group: mean 1/3, std sqrt(1/3), so -1/sqrt(3), -1/sqrt(3), 2/sqrt(3)."""
    group = [-1 / sqrt(3), -1 / sqrt(3), 2 / sqrt(3)]
    pairs = [-sqrt(0.5) / 2, -sqrt(0.5) / 2, sqrt(0.5)]
    expected = [(one + other) / 2 for one, other in zip(group, pairs, strict=True)]
    for kind in (float, Fraction):
        rewards = [kind(0), kind(0), kind(1)]
        assert reference_advantages(rewards, epsilon=0) == pytest.approx(expected)
    assert expected == pytest.approx([-0.465, -0.465, 0.931], abs=1e-3)


def test_weights_and_chosen_subgroups():
    rewards = [0.0, 0.0, 1.0]
    pairs, group = reference_advantages(rewards, [2]), reference_advantages(rewards, [3])
    mixed = reference_advantages(rewards, [2, 3], [1.0, 3.0])
    assert mixed == pytest.approx([(p + 3 * g) / 4 for p, g in zip(pairs, group, strict=True)])
    few = reference_advantages(rewards, [2], subgroups=[[(0, 2), (1, 2)]], epsilon=0)
    assert few == pytest.approx([-sqrt(0.5), -sqrt(0.5), sqrt(0.5)])
