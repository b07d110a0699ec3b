"""Bias and error of the advantages, against closed forms and a published table."""

import math
from itertools import product

import pytest
import torch

from verl_msgrpo import MSGRPOConfig
from verl_msgrpo.analysis.errors import (
    RewardDistribution,
    design_errors,
    discrete_errors,
    sampled_bias,
    sampled_errors,
    undivided_bias,
    undivided_mse,
)
from verl_msgrpo.analysis.rescaling import binary_rescaling
from verl_msgrpo.estimator.reference import reference_advantages
from verl_msgrpo.estimator.scales import dilated_scales, weighted_scales

EVERY = weighted_scales(8, MSGRPOConfig())
GROUP = ((8, 1.0),)
UNDIVIDED = MSGRPOConfig(normalize_by_std=False)
DRAWN = torch.randn(100, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def normal(shape, generator):
    return 0.5 + 0.2 * torch.randn(shape, generator=generator, dtype=torch.float64)


def test_closed_form_against_the_published_table():
    # A public review of the paper, 1000 trials: variance, GRPO, MS-GRPO.
    table = [(0.01, 0.00117, 0.00134), (0.04, 0.00450, 0.00517), (0.09, 0.0109, 0.0123)]
    table += [(0.05, 0.00619, 0.00700), (1 / 12, 0.0100, 0.0114)]
    for variance, grpo, ours in table:
        for published, scales in ((grpo, GROUP), (ours, EVERY)):
            tolerance = 3 * math.sqrt(2 / 1000) * published
            assert undivided_mse(variance, 8, scales) == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize("size", [3, 8])
def test_exact_errors_without_the_std_division(size):
    values, chances = [0.0, 0.2, 1.0], [0.5, 0.3, 0.2]
    found = discrete_errors(values, chances, size, UNDIVIDED)
    mean = 0.26
    variance = 0.3 * 0.2**2 + 0.2 - mean**2
    scales = weighted_scales(size, UNDIVIDED)
    b = undivided_bias(size, scales)
    assert found.bias.tolist() == pytest.approx([b * (value - mean) for value in values])
    assert found.mse == pytest.approx(undivided_mse(variance, size, scales), rel=1e-12)
    assert found.gain == pytest.approx(1 + b, rel=1e-12)
    assert found.correlation == pytest.approx(math.sqrt(1 - 1 / size), rel=1e-12)


def test_exact_errors_against_every_ordered_group():
    values, chances, size = [0.0, 0.1, 1.0], [0.5, 0.2, 0.3], 4
    mean = 0.32
    sd = math.sqrt(0.2 * 0.01 + 0.3 - mean**2)
    given = dict.fromkeys(values, 0.0)
    mse = gain = square = 0.0
    for group in product(values, repeat=size):
        weight = math.prod(chances[values.index(reward)] for reward in group)
        ours, z = reference_advantages(group)[0], (group[0] - mean) / sd
        given[group[0]] += weight * ours / chances[values.index(group[0])]
        mse += weight * (ours - z) ** 2
        gain += weight * ours * z
        square += weight * ours**2
    found = discrete_errors(values, [5, 2, 3], size)
    bias = [given[value] - (value - mean) / sd for value in values]
    assert found.bias.tolist() == pytest.approx(bias, rel=1e-9)
    numbers = (found.mse, found.gain, found.correlation)
    assert numbers == pytest.approx((mse, gain, gain / math.sqrt(square)), rel=1e-9)


@pytest.mark.parametrize(
    ("values", "chances"), [([1.0], [1.0]), ([1.0, 1.0], [0.5, 0.5]), ([0.0, 1.0], [1.0])]
)
def test_refuses_what_is_no_distribution(values, chances):
    with pytest.raises(ValueError, match="values: allowed are two or more"):
        discrete_errors(values, chances, 8)


def test_refuses_too_many_groups():
    with pytest.raises(ValueError, match=r"values: they make \d+ groups"):
        discrete_errors(list(range(20)), [1.0] * 20, 8)


def test_drawn_errors_meet_the_closed_form():
    rewards = RewardDistribution(normal, 0.5, 0.2)
    found = sampled_errors(rewards, 8, UNDIVIDED, groups=5000)
    assert found.mse.value == pytest.approx(undivided_mse(0.04, 8, EVERY), abs=4 * found.mse.error)
    gain = 1 + undivided_bias(8, EVERY)
    assert found.gain.value == pytest.approx(gain, abs=4 * found.gain.error)
    assert found.correlation == pytest.approx(math.sqrt(7 / 8), abs=0.01)


def test_drawn_errors_meet_the_exact_ones():
    def draw(shape, generator):
        return (torch.rand(shape, generator=generator) < 0.3).double()

    rewards = RewardDistribution(draw, 0.3, math.sqrt(0.21))
    drawn, exact = sampled_errors(rewards, 8), discrete_errors([0, 1], [0.7, 0.3], 8)
    assert drawn.mse.value == pytest.approx(exact.mse, abs=4 * drawn.mse.error)
    assert drawn.gain.value == pytest.approx(exact.gain, abs=4 * drawn.gain.error)
    assert drawn.correlation == pytest.approx(exact.correlation, abs=0.005)
    at = torch.tensor([0.0, 1.0])
    assert sampled_bias(rewards, at, 8).tolist() == pytest.approx(exact.bias.tolist(), abs=0.02)


def test_drawn_bias_without_the_std_division_is_linear():
    rewards = RewardDistribution(normal, 0.5, 0.2)
    at = torch.tensor([0.0, 0.5, 1.5], dtype=torch.float64)
    found = sampled_bias(rewards, at, 8, UNDIVIDED, groups=5000)
    expected = undivided_bias(8, EVERY) * (at - 0.5)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.006)


# --- What M scales and K subgroups leave out ------------------------------------------------------


def test_all_subgroups_of_all_scales_leave_nothing_out():
    found = design_errors(DRAWN, num_scales=7, subgroups=70)
    assert found == pytest.approx((0, 0, 1), abs=1e-12)


def test_noise_falls_with_k_and_is_gone_when_k_takes_all():
    noise = [design_errors(DRAWN, 2, subgroups).noise for subgroups in (4, 8, 16, 28)]
    assert noise == sorted(noise, reverse=True)
    assert noise[0] > 0.2
    assert noise[3] < 1e-12  # C(8, 2) = 28


def test_binary_rewards_are_dilated_by_a_factor_only():
    right = (torch.arange(8) < 3).double()[None]
    found = design_errors(right, num_scales=4, subgroups=8)
    every, some = (
        binary_rescaling(8, tuple((scale, 1 / len(scales)) for scale in scales))[2].item()
        for scales in (range(2, 9), dilated_scales(8, 4))
    )
    assert found.dilation == pytest.approx(0, abs=1e-6)
    assert found.rescaling == pytest.approx(every / some, rel=1e-5)
