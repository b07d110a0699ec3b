"""Exact bias and error of the advantages for rewards with a few possible values."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from verl_msgrpo.estimator.advantages import ms_grpo_advantages
from verl_msgrpo.estimator.config import MSGRPOConfig

MAX_GROUPS = 2**18


class AdvantageErrors(NamedTuple):
    """The advantage A of a response, against what it estimates.

    The target is z = (r - E r) / sd, with the moments of the distribution; without the std
    division it is z = r - E r. Groups without signal count: their A is 0.

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
    ways = math.lgamma(group_size + 1) - torch.lgamma(counts + 1).sum(dim=1)
    weight = (ways + counts @ chance.log()).exp() / group_size  # of each member of a group
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
