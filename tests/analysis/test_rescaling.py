"""c and f against published figures, brute force, and the estimator itself."""

import math

import pytest
import torch

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages
from verl_msgrpo.analysis.rescaling import (
    binary_rescaling,
    hypergeometric,
    mean_rescaling,
    undivided_rescaling,
)
from verl_msgrpo.estimator.reference import reference_advantages
from verl_msgrpo.estimator.scales import weighted_scales


def scales_of(size, **settings):
    return weighted_scales(size, MSGRPOConfig(**settings))


def test_figures_of_the_paper_for_groups_of_eight():
    every = [0.6889, 0.7866, 0.8223, 0.8320, 0.8223, 0.7866, 0.6889]
    assert binary_rescaling(8, scales_of(8)).tolist() == pytest.approx(every, abs=5e-5)
    four = [0.6791, 0.7653, 0.7979, 0.8067]
    found = binary_rescaling(8, scales_of(8, num_scales=4))
    assert found[:4].tolist() == pytest.approx(four, abs=5e-5)


@pytest.mark.parametrize("right", range(1, 6))
def test_weighted_scales_against_brute_force(right):
    rewards = [1.0] * right + [0.0] * (6 - right)
    scales = scales_of(6, scales=[2, 3, 5], scale_weights=[1, 2, 5])
    ours = reference_advantages(rewards, [2, 3, 5], [1, 2, 5], epsilon=0)[0]
    grpo = reference_advantages(rewards, [6], epsilon=0)[0]
    assert binary_rescaling(6, scales)[right - 1].item() == pytest.approx(ours / grpo, rel=1e-12)


def test_a_large_group_against_the_estimator():
    right = torch.tensor([1, 7, 32, 60])
    rewards = (torch.arange(64) < right[:, None]).double()
    ours = ms_grpo_advantages(rewards, MSGRPOConfig(epsilon=0.0))[:, 0]
    grpo = ms_grpo_advantages(rewards, MSGRPOConfig(scales=[64], epsilon=0.0))[:, 0]
    found = binary_rescaling(64, scales_of(64))[right - 1]
    torch.testing.assert_close(found, ours / grpo, rtol=1e-10, atol=0)


def test_a_scale_of_the_whole_group_rescales_nothing():
    assert binary_rescaling(9, ((9, 1.0),)).tolist() == pytest.approx([1.0] * 8, rel=1e-12)


def test_pairs_alone_have_a_closed_form():
    # A right response meets a wrong one with probability (G - k) / (G - 1); then it gets 1/sqrt 2.
    for k in range(1, 8):
        ours = (8 - k) / 7 / math.sqrt(2)
        grpo = (1 - k / 8) / math.sqrt(k / 8 * (1 - k / 8) * 8 / 7)
        assert binary_rescaling(8, ((2, 1.0),))[k - 1].item() == pytest.approx(ours / grpo)


def test_mean_weighs_by_the_binomial_distribution():
    factors = binary_rescaling(5, scales_of(5)).tolist()
    chances = [math.comb(5, k) * 0.3**k * 0.7 ** (5 - k) for k in range(1, 5)]
    expected = sum(c * p for c, p in zip(factors, chances, strict=True)) / sum(chances)
    assert mean_rescaling(0.3, 5, scales_of(5)) == pytest.approx(expected, rel=1e-12)
    assert mean_rescaling(1e-9, 5, scales_of(5)) == pytest.approx(factors[0], rel=1e-6)


def test_without_the_std_division():
    assert undivided_rescaling(8, scales_of(8)) == pytest.approx(0.8623906705539358, abs=1e-15)
    assert undivided_rescaling(8, ((8, 1.0),)) == pytest.approx(1.0)
    ours = reference_advantages([0.3, -1.0, 2.5, 0.0], normalize=False)
    grpo = reference_advantages([0.3, -1.0, 2.5, 0.0], scales=[4], normalize=False)
    assert undivided_rescaling(4, scales_of(4)) == pytest.approx(ours[0] / grpo[0])


def test_hypergeometric_against_binomials():
    found = torch.arange(-1, 7)
    expected = [
        math.comb(5, x) * math.comb(7, 4 - x) / math.comb(12, 4) if 0 <= x <= 4 else 0.0
        for x in found.tolist()
    ]
    chances = hypergeometric(found, 12, 5, torch.tensor(4))
    assert chances.tolist() == pytest.approx(expected, rel=1e-12)
