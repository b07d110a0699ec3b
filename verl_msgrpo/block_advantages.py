"""Advantages of the groups of one block: over all subgroups, or over a few.

Where the std is not divided out, they come in the block's unit, 2**exponent, which keeps every
intermediate result in range; `in_reward_units` undoes that. Divided by the std they have no unit.
"""

import torch

from verl_msgrpo.all_subgroups import advantages_over_all, undivided_advantages
from verl_msgrpo.blocks import Block
from verl_msgrpo.config import MSGRPOConfig
from verl_msgrpo.designs import subgroup_design
from verl_msgrpo.diverse_subgroups import advantages_over
from verl_msgrpo.reward_values import times_power_of_two
from verl_msgrpo.scales import WeightedScales


def over_all(block: Block, scales: WeightedScales, config: MSGRPOConfig) -> torch.Tensor:
    """(n, G) float64 advantages of a block, over all subgroups."""
    if config.normalize_by_std is False:
        return undivided_advantages(block.values, scales)
    epsilon = epsilon_in_units(block, config)
    advantages = torch.empty_like(block.values)
    for counts, (groups, values, place) in block.patterns.items():
        per_value = advantages_over_all(values, counts, scales, epsilon[groups])
        advantages[groups] = per_value.gather(1, place)
    return advantages


def over_diverse(block: Block, scales: WeightedScales, config: MSGRPOConfig) -> torch.Tensor:
    """(n, G) float64 advantages of a block, over a few subgroups per scale."""
    size = block.values.shape[1]
    chosen = [
        (subgroup_design(size, scale, config.subgroups_per_scale, config.seed), weight)
        for scale, weight in scales
    ]
    epsilon = None if config.normalize_by_std is False else epsilon_in_units(block, config)
    return advantages_over(block.values, chosen, epsilon)


def in_reward_units(advantages: torch.Tensor, block: Block, config: MSGRPOConfig) -> torch.Tensor:
    """Advantages, one row a group, as they are added to a loss."""
    if config.normalize_by_std is False:
        return times_power_of_two(advantages, block.exponent)
    return advantages


def epsilon_in_units(block: Block, config: MSGRPOConfig) -> torch.Tensor:
    """(n,) float64: epsilon in the units of each group's values."""
    epsilon = torch.full((len(block.values), 1), config.epsilon, dtype=torch.float64)
    return times_power_of_two(epsilon, -block.exponent)[:, 0].clamp(max=1e300)
