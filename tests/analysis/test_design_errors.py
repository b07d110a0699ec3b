"""The two steps of the shortcut, where they are known."""

import pytest
import torch

from verl_msgrpo.analysis.design_errors import design_errors
from verl_msgrpo.analysis.rescaling import binary_rescaling
from verl_msgrpo.estimator.scales import dilated_scales

REWARDS = torch.randn(100, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_all_subgroups_of_all_scales_leave_nothing_out():
    found = design_errors(REWARDS, num_scales=7, subgroups=70)
    assert found == pytest.approx((0, 0, 1), abs=1e-12)


def test_noise_falls_with_k_and_is_gone_when_k_takes_all():
    noise = [design_errors(REWARDS, 2, subgroups).noise for subgroups in (4, 8, 16, 28)]
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
