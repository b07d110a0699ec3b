"""Policy-gradient training of softmax policies, many at once, with each method and its own rate."""

from typing import NamedTuple

import numpy as np
import torch

from verl_msgrpo.analysis.bandits import Bandits, draw_noise, pull
from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.estimator.metrics import ms_grpo_advantages_and_metrics

RATE_GROUPS = 2000  # drawn to learn the unit of a reward


class Training(NamedTuple):
    """What came of L learning rates on B bandits.

    values: (steps + 1, L, B) float64, expected reward of the policy at the start and after each
        step.
    scale, correction: means over the groups with signal of the metrics of these names (see
        `ms_grpo_advantages_and_metrics`): the best factor c between the advantages and those of
        GRPO, and the share that no factor explains. 0 if no group had signal.
    """

    values: torch.Tensor
    scale: float
    correction: float


def methods(group_size: int) -> dict[str, MSGRPOConfig]:
    """Names and settings: the scale G alone is GRPO, and without the std division Dr. GRPO."""
    return {
        "GRPO": MSGRPOConfig(scales=[group_size]),
        "Dr. GRPO": MSGRPOConfig(scales=[group_size], normalize_by_std=False),
        "MS-GRPO exact": MSGRPOConfig(subgroups="all"),
        "MS-GRPO paper": MSGRPOConfig(preset="paper"),
    }


def train(
    bandits: Bandits,
    config: MSGRPOConfig,
    rates: torch.Tensor,
    steps: int,
    group_size: int,
    seed: int,
) -> Training:
    """Trains a policy per learning rate and bandit, from the uniform one, by plain gradient ascent.

    Each step draws a group of G arms from the current policy, and adds to its logits
    rate * mean_i A_i grad log pi(a_i): on-policy, one update per group, no clipping, no KL term, no
    optimizer state. All groups of a step are one call of the estimator.

    Args:
        rates: (L,) or (L, 1) float64.
        seed: of arms and noise: runs with the same seed share their random numbers, whatever the
            method and the rate, so that differences are paired.
    """
    rng = np.random.default_rng(seed)
    runs, arms = bandits.quality.shape
    rates = rates.reshape(-1, 1, 1)
    logits = torch.zeros(len(rates), runs, arms, dtype=torch.float64)
    group_index = torch.arange(len(rates) * runs).repeat_interleave(group_size)
    policy = logits.softmax(dim=2)
    values = [(policy * bandits.expected).sum(dim=2)]
    totals = {"signal": 0.0, "scale": 0.0, "correction": 0.0}
    for _ in range(steps):
        chosen = _choose(policy, torch.from_numpy(rng.random((runs, group_size))))
        rewards = pull(bandits, chosen, draw_noise(bandits, group_size, rng))
        flat, metrics = ms_grpo_advantages_and_metrics(rewards.flatten(), group_index, config)
        advantages = flat.reshape(rewards.shape)
        gradient = -policy * advantages.sum(dim=2, keepdim=True)
        gradient.scatter_add_(2, chosen, advantages)
        logits += rates * gradient / group_size
        policy = logits.softmax(dim=2)
        values.append((policy * bandits.expected).sum(dim=2))
        signal = metrics["groups"] * (1 - metrics["homogeneous_share"])
        totals["signal"] += signal
        for name in ("scale", "correction"):
            totals[name] += signal * metrics.get(name, 0.0)
    groups = max(totals["signal"], 1.0)
    return Training(torch.stack(values), totals["scale"] / groups, totals["correction"] / groups)


def rate_unit(bandits: Bandits, config: MSGRPOConfig, group_size: int, seed: int) -> float:
    """The learning rate that moves about as far as a rate of 1 does for advantages without unit.

    Args:
        bandits: of the problem; groups are drawn from their uniform policies.
        config: of the method.
        group_size, seed: of the groups.

    Returns:
        1 where the std is divided out; else 1 / the median std of a group with signal.
    """
    if config.normalize_by_std is not False:
        return 1.0
    generator = torch.Generator().manual_seed(seed)
    runs, arms = bandits.quality.shape
    repeats = -(-RATE_GROUPS // runs)
    chosen = torch.randint(arms, (repeats, runs, group_size), generator=generator)
    rng = np.random.default_rng(seed)
    std = pull(bandits, chosen, draw_noise(bandits, group_size, rng)).std(dim=2)
    return 1 / std[std > 0].median().item()


def best_rate(rates: torch.Tensor, means: torch.Tensor) -> float:
    """The best learning rate, from mean scores on a grid of them.

    A polynomial of degree 4 in the logarithm of the rate is fitted to all points, and the place of
    its maximum taken, to a twentieth of an octave: neither the luck of one point nor the spacing
    of the grid decides, so that two methods that differ by a factor get rates that do.

    Args:
        rates: (L,) ascending, L >= 5.
        means: (L,).

    Returns:
        a rate from the first to the last; an end of the grid if the scores rise towards it.
    """
    octaves = rates.double().log2().numpy()
    curve = np.polynomial.Polynomial.fit(octaves, means.double().numpy(), 4)
    fine = np.linspace(octaves[0], octaves[-1], 1 + round(20 * (octaves[-1] - octaves[0])))
    return float(2 ** fine[curve(fine).argmax()])


def _choose(policy: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """(L, B, G) arms: where the uniform numbers (B, G) fall in each policy (L, B, arms)."""
    edges = policy.cumsum(dim=2).contiguous()
    wanted = uniform.expand(len(policy), -1, -1).contiguous()
    return torch.searchsorted(edges, wanted, right=True).clamp_(max=policy.shape[2] - 1)
