"""The expansion against its definition, subgroup by subgroup, and against what it approximates."""

from itertools import combinations
from statistics import fmean, stdev, variance

import numpy as np
import pytest
import torch

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages
from verl_msgrpo.analysis.rescaling import undivided_rescaling
from verl_msgrpo.analysis.taylor import taylor_advantages
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
