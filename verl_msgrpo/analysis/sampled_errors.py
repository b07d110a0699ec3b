"""Bias and error of the advantages for any distribution of rewards, by drawing groups."""

import math
from typing import NamedTuple

import torch

from verl_msgrpo.analysis.reward_distribution import RewardDistribution
from verl_msgrpo.estimator.advantages import ms_grpo_advantages
from verl_msgrpo.estimator.config import MSGRPOConfig


class Estimate(NamedTuple):
    """A mean over independent groups and its standard error."""

    value: float
    error: float


class SampledErrors(NamedTuple):
    """As `AdvantageErrors`, of drawn groups; the correlation is that of the pooled sample."""

    mse: Estimate
    gain: Estimate
    correlation: float


def sampled_errors(
    rewards: RewardDistribution,
    group_size: int,
    config: MSGRPOConfig | None = None,
    groups: int = 20_000,
    seed: int = 0,
) -> SampledErrors:
    """Compares advantages with (r - E r) / sd, or r - E r where config does not divide.

    Args:
        rewards: of one response; i.i.d.
        group_size: G.
        config: of the estimator.
        groups: how many are drawn.
        seed: of the draws; the same seed gives the same groups to every config.
    """
    config = config or MSGRPOConfig()
    drawn = rewards.draw((groups, group_size), torch.Generator().manual_seed(seed))
    target = rewards.target(drawn, config.normalize_by_std is not False)
    advantages = ms_grpo_advantages(drawn, config)
    size = rewards.std**2 if config.normalize_by_std is False else 1.0
    correlation = (advantages * target).sum() / (advantages.norm() * target.norm())
    return SampledErrors(
        mse=_estimate((advantages - target).square().mean(dim=1)),
        gain=_estimate((advantages * target).mean(dim=1) / size),
        correlation=correlation.item(),
    )


def sampled_bias(
    rewards: RewardDistribution,
    at: torch.Tensor,
    group_size: int,
    config: MSGRPOConfig | None = None,
    groups: int = 20_000,
    seed: int = 0,
) -> torch.Tensor:
    """E[A | r] - z for chosen rewards of one response, its G - 1 siblings being drawn.

    Args:
        at: (n,) float64 rewards.
        groups: drawn per reward; all rewards meet the same siblings.

    Returns:
        (n,) float64.
    """
    config = config or MSGRPOConfig()
    others = rewards.draw((groups, group_size - 1), torch.Generator().manual_seed(seed))
    own = at.double()[:, None, None].expand(-1, groups, 1)
    every = torch.cat([own, others.expand(len(at), -1, -1)], dim=2)
    advantages = ms_grpo_advantages(every.reshape(-1, group_size), config)[:, 0]
    mean = advantages.reshape(len(at), groups).mean(dim=1)
    return mean - rewards.target(at.double(), config.normalize_by_std is not False)


def _estimate(per_group: torch.Tensor) -> Estimate:
    return Estimate(per_group.mean().item(), per_group.std().item() / math.sqrt(len(per_group)))
