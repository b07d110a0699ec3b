"""Policy-gradient training of softmax policies, many at once."""

from typing import NamedTuple

import numpy as np
import torch

from verl_msgrpo.analysis.bandits import Bandits, draw_noise, pull
from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.estimator.metrics import ms_grpo_advantages_and_metrics


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


def _choose(policy: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """(L, B, G) arms: where the uniform numbers (B, G) fall in each policy (L, B, arms)."""
    edges = policy.cumsum(dim=2).contiguous()
    wanted = uniform.expand(len(policy), -1, -1).contiguous()
    return torch.searchsorted(edges, wanted, right=True).clamp_(max=policy.shape[2] - 1)
