"""What M scales and K subgroups per scale leave of the average over all subgroups."""

from typing import NamedTuple

import torch

from verl_msgrpo.estimator.advantages import ms_grpo_advantages
from verl_msgrpo.estimator.config import MSGRPOConfig


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
