"""One step by hand, limits of the learning rate, and common random numbers."""

import numpy as np
import pytest
import torch

from verl_msgrpo.analysis.bandits import ARMS, draw_noise, make_bandits, pull, scores_of
from verl_msgrpo.analysis.training import best_rate, methods, rate_unit, train

METHODS = methods(8)
BANDITS = make_bandits("continuous", 0.5, 40, np.random.default_rng(0))


def test_one_step_is_the_policy_gradient():
    training = train(BANDITS, METHODS["Dr. GRPO"], torch.tensor([0.3]), 1, 8, seed=5)
    rng = np.random.default_rng(5)
    arms = torch.from_numpy((rng.random((40, 8)) * ARMS).astype(np.int64))  # uniform at first
    rewards = pull(BANDITS, arms[None], draw_noise(BANDITS, 8, rng))[0]
    logits = torch.zeros(40, ARMS, dtype=torch.float64, requires_grad=True)
    advantages = rewards - rewards.mean(dim=1, keepdim=True)
    (advantages * logits.log_softmax(dim=1).gather(1, arms)).mean(dim=1).sum().backward()
    assert logits.grad is not None
    after = (0.3 * logits.grad).softmax(dim=1)
    expected = (after * BANDITS.expected).sum(dim=1)
    torch.testing.assert_close(training.values[1, 0], expected)
    torch.testing.assert_close(training.values[0, 0], BANDITS.expected.mean(dim=1))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns(name):
    training = train(BANDITS, METHODS[name], torch.tensor([0.0, 0.5]), 40, 8, seed=0)
    scores = scores_of(training.values, BANDITS)
    assert scores.final[0].abs().max() < 1e-12
    assert scores.area[0].abs().max() < 1e-12
    assert scores.final[1].mean() > 0.5
    assert scores.final[1].mean() > scores.area[1].mean()
    assert scores.stuck[0].tolist() == [1.0] * 40


def test_metrics_tell_the_methods_apart():
    found = {
        name: train(BANDITS, config, torch.tensor([1.0]), 3, 8, seed=0)
        for name, config in METHODS.items()
    }
    assert found["GRPO"].scale == pytest.approx(1)
    assert found["GRPO"].correction == pytest.approx(0, abs=1e-9)
    assert 0.75 < found["MS-GRPO exact"].scale < 0.87
    assert found["MS-GRPO exact"].correction > 0.05
    binary = make_bandits("binary", 0.0, 40, np.random.default_rng(0))
    exact = train(binary, METHODS["MS-GRPO exact"], torch.tensor([1.0]), 3, 8, seed=0)
    assert exact.correction == pytest.approx(0, abs=1e-6)


def test_rates_do_not_disturb_each_other():
    together = train(BANDITS, METHODS["GRPO"], torch.tensor([0.5, 4.0]), 5, 8, seed=1).values
    for place, rate in enumerate((0.5, 4.0)):
        alone = train(BANDITS, METHODS["GRPO"], torch.tensor([rate]), 5, 8, seed=1).values
        torch.testing.assert_close(together[:, place], alone[:, 0])


def test_scores_by_hand():
    bandits = BANDITS._replace(expected=torch.tensor([[0.0, 2.0], [0.0, 6.0]]))  # gain 1 and 3
    values = torch.tensor([[[1.0, 3.0]], [[1.5, 3.0]], [[2.0, 4.0]]])
    scores = scores_of(values, bandits)
    assert scores.final.tolist() == [[0.5, 0.5]]
    assert scores.area.tolist() == [[0.375, 0.25]]
    assert scores.stuck.tolist() == [[0.0, 1.0]]


def test_unit_of_the_rate_is_that_of_the_reward():
    undivided, divided = METHODS["Dr. GRPO"], METHODS["GRPO"]
    assert rate_unit(BANDITS, divided, 8, 0) == 1
    one = rate_unit(BANDITS, undivided, 8, 0)
    ten = BANDITS._replace(quality=10 * BANDITS.quality, noise=10 * BANDITS.noise)
    assert rate_unit(ten, undivided, 8, 0) == pytest.approx(one / 10)


def test_best_rate_finds_a_peak_under_noise():
    rates = 2 ** torch.linspace(-1, 5, 13, dtype=torch.float64)
    means = 0.9 - 0.03 * (rates.log2() - 1.3).square()
    noise = torch.randn(13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert best_rate(rates, means) == pytest.approx(2**1.3, rel=0.02)
    assert best_rate(rates, means + 0.01 * noise) == pytest.approx(2**1.3, rel=0.3)
    assert best_rate(rates, rates.log2()) == pytest.approx(32)
