"""The problems: what is drawn has the mean that it is said to have."""

import numpy as np
import pytest
import torch

from verl_msgrpo.analysis.bandits import ARMS, KINDS, draw_noise, make_bandits, pull


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0.0, 0.5])
def test_arms_pay_what_they_promise(kind, level):
    rng = np.random.default_rng(0)
    bandits = make_bandits(kind, level, 2, rng)
    arms = torch.arange(ARMS).repeat_interleave(20_000).expand(1, 2, -1)
    rewards = pull(bandits, arms, draw_noise(bandits, arms.shape[2], rng))
    by_arm = rewards.reshape(2, ARMS, 20_000)
    error = by_arm.std(dim=2) / 20_000**0.5
    assert ((by_arm.mean(dim=2) - bandits.expected).abs() < 5 * error).all()
    assert len(bandits.expected.unique()) == 2 * ARMS


def test_what_the_levels_do():
    def bandits(kind, level):
        return make_bandits(kind, level, 500, np.random.default_rng(0))

    spread = [bandits("binary", level).expected.mean(dim=1).std() for level in (0.0, 3.0)]
    assert spread[1] > 2 * spread[0]
    graded = bandits("graded", 1.0)
    all_pass = torch.zeros(500, 3, 4)
    arms = torch.zeros(1, 500, 3, dtype=torch.int64)
    assert pull(graded, arms, all_pass).unique().tolist() == [1.0]
    half_pass = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(500, 3, 4)
    assert pull(graded, arms, half_pass).unique().tolist() == [0.25]
    assert bandits("continuous", 0.0).noise.unique().tolist() == [1.0]
    assert bandits("continuous", 1.0).noise.log().std().item() == pytest.approx(1, abs=0.05)
    outliers = [
        draw_noise(bandits("heavy", level), 8, np.random.default_rng(0)).abs().max()
        for level in (0.0, 6.0)
    ]
    assert outliers[0] < 6 < 50 < outliers[1]
    shape = bandits("skewed", 1.0).noise
    assert shape.min() >= 0.5
    assert shape.max() <= 1.5


def test_refuses_another_kind():
    with pytest.raises(ValueError, match="kind: allowed are binary"):
        make_bandits("ternary", 0.0, 1, np.random.default_rng(0))
