"""How far the advantages are from what they estimate, and what the paper's shortcut leaves out.

Rewards are i.i.d. with mean E r and standard deviation sd. An advantage estimates the target
z = (r - E r) / sd; without the std division, z = r - E r. Its bias and mean squared error are known

    in closed form without the std division     undivided_bias, undivided_mse
    exactly for a few possible rewards          discrete_errors
    by drawing groups for any distribution      sampled_errors, sampled_bias

design_errors compares averages over few subgroups with the one over all.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from verl_msgrpo.analysis.rescaling import undivided_rescaling
from verl_msgrpo.estimator.advantages import ms_grpo_advantages
from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.estimator.scales import WeightedScales

MAX_GROUPS = 2**18


class RewardDistribution(NamedTuple):
    """A distribution of i.i.d. rewards, known by how to draw from it.

    draw: (shape, generator) -> float64 rewards of that shape.
    mean, std: of the distribution (ddof does not come in); finite, std > 0.
    """

    draw: Callable[[tuple[int, int], torch.Generator], torch.Tensor]
    mean: float
    std: float

    def target(self, rewards: torch.Tensor, divided: bool) -> torch.Tensor:
        """What the advantage of a reward estimates: r - E r, `divided` by the std or not."""
        return (rewards - self.mean) / (self.std if divided else 1.0)


class AdvantageErrors(NamedTuple):
    """The advantage A of a response against its target z. Groups without signal count: A is 0.

    bias: (V,) float64, E[A | r] - z for each possible reward.
    mse: E[(A - z)^2].
    gain: E[A z] / E[z^2], the slope of A on z.
    correlation: of A and z. A learning rate makes up for the gain, but not for this: after the best
        rescaling of A, its error is (1 - correlation^2) E[z^2].
    """

    bias: torch.Tensor
    mse: float
    gain: float
    correlation: float


class SampleMean(NamedTuple):
    """A mean over independent groups and its standard error."""

    value: float
    error: float


class SampledErrors(NamedTuple):
    """As `AdvantageErrors`, of drawn groups; the correlation is that of the pooled sample."""

    mse: SampleMean
    gain: SampleMean
    correlation: float


class DesignErrors(NamedTuple):
    """Norms of differences over norms, pooled over all groups.

    noise: the K subgroups against all subgroups of the same M scales. It depends on the order of
        the responses, which says nothing: noise.
    dilation: all subgroups of the M scales against all of all scales, after the best common
        rescaling: what is a different average, and not noise.
    rescaling: that factor, how much larger the average over all scales is.
    """

    noise: float
    dilation: float
    rescaling: float


def undivided_bias(group_size: int, scales: WeightedScales) -> float:
    """b of the bias E[A_i | r_i] - (r_i - E r) = b (r_i - E r), for i.i.d. rewards.

    A is f (r_i - mean), and the mean holds r_i itself, so b = f (G - 1) / G - 1: never positive,
    and -1 / G for Dr. GRPO (the scale G alone). The advantage only shrinks.
    """
    return undivided_rescaling(group_size, scales) * (group_size - 1) / group_size - 1


def undivided_mse(variance: float, group_size: int, scales: WeightedScales) -> float:
    """E[(A_i - (r_i - E r))^2] for i.i.d. rewards: s^2 / G + (1 - f)^2 s^2 (G - 1) / G.

    The error is (f - 1) (r_i - mean) + (mean - E r); both parts are uncorrelated.
    """
    f = undivided_rescaling(group_size, scales)
    return variance / group_size * (1 + (1 - f) ** 2 * (group_size - 1))


def discrete_errors(
    values: Sequence[float],
    probabilities: Sequence[float],
    group_size: int,
    config: MSGRPOConfig | None = None,
) -> AdvantageErrors:
    """Goes through all groups of i.i.d. rewards that differ by more than their order.

    Args:
        values: V >= 2 different rewards.
        probabilities: V numbers > 0, which are normalised.
        group_size: G >= 2.
        config: of the estimator; always taken over all subgroups (for a choice of a few, the order
            matters: see `sampled_errors`).

    Raises:
        ValueError: no distribution, or more than 2^18 groups, C(G + V - 1, G).
    """
    if len(set(values)) != len(values) or len(values) < 2 or len(values) != len(probabilities):
        raise ValueError("values: allowed are two or more different ones, each with a probability")
    number = math.comb(group_size + len(values) - 1, group_size)
    if number > MAX_GROUPS:
        raise ValueError(f"values: they make {number} groups, allowed are {MAX_GROUPS}")
    config = dataclasses.replace(config or MSGRPOConfig(), subgroups="all")
    reward = torch.tensor(values, dtype=torch.float64)
    chance = torch.tensor(probabilities, dtype=torch.float64)
    chance = chance / chance.sum()
    target = reward - chance @ reward
    if config.normalize_by_std is not False:
        target = target / (chance @ target.square()).sqrt()

    columns = itertools.combinations_with_replacement(range(len(values)), group_size)
    place = torch.tensor(list(columns))  # (groups, G)
    counts = torch.nn.functional.one_hot(place, len(values)).sum(dim=1).double()
    multinomial = torch.distributions.Multinomial(group_size, chance)
    weight = multinomial.log_prob(counts).exp() / group_size  # of each member of a group
    advantages = ms_grpo_advantages(reward[place], config)

    weights = weight[:, None].expand(place.shape).flatten()
    flat, target_of = advantages.flatten(), target[place].flatten()
    sums = torch.zeros_like(reward).index_add_(0, place.flatten(), weights * flat)
    size = chance @ target.square()
    second = weights @ flat.square()
    product = weights @ (flat * target_of)
    return AdvantageErrors(
        bias=sums / chance - target,
        mse=(weights @ (flat - target_of).square()).item(),
        gain=(product / size).item(),
        correlation=(product / (size * second).sqrt()).item(),
    )


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
        mse=_sample_mean((advantages - target).square().mean(dim=1)),
        gain=_sample_mean((advantages * target).mean(dim=1) / size),
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


def design_errors(rewards: torch.Tensor, num_scales: int, subgroups: int) -> DesignErrors:
    """Takes the shortcut of the paper, M scales and K subgroups, apart into its two steps.

    Args:
        rewards: (n, G) real, finite; some group has two different ones. All subgroups of all scales
            must be affordable (see MSGRPOConfig.max_terms).
        num_scales: M >= 1.
        subgroups: K >= 1.
    """
    few = ms_grpo_advantages(
        rewards,
        MSGRPOConfig(num_scales=num_scales, subgroups_per_scale=subgroups, subgroups="diverse"),
    )
    some = ms_grpo_advantages(rewards, MSGRPOConfig(num_scales=num_scales, subgroups="all"))
    every = ms_grpo_advantages(rewards, MSGRPOConfig(subgroups="all"))
    rescaling = (every * some).sum() / some.square().sum()
    return DesignErrors(
        noise=((few - some).norm() / some.norm()).item(),
        dilation=((every - rescaling * some).norm() / every.norm()).item(),
        rescaling=rescaling.item(),
    )


def _sample_mean(per_group: torch.Tensor) -> SampleMean:
    return SampleMean(per_group.mean().item(), per_group.std().item() / math.sqrt(len(per_group)))
