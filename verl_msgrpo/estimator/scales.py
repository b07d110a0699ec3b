"""Which scales (subgroup sizes) a group of a given size is compared at, and their weights."""

import functools

from verl_msgrpo.estimator.config import MSGRPOConfig


def dilated_scales(group_size: int, num_scales: int, min_scale: int = 2) -> tuple[int, ...]:
    """Spreads scales evenly from `min_scale` to `group_size` (dilated scale sampling).

    Halves round up; a single scale is the group itself. G = 8, M = 4 gives (2, 4, 6, 8), as in the
    paper; the rounding for other sizes is our choice.

    Args:
        group_size: G >= min_scale.
        num_scales: M >= 1.
        min_scale: smallest scale, >= 2.

    Returns:
        M ascending scales; some coincide if M exceeds the number of sizes.
    """
    if num_scales == 1:
        return (group_size,)
    steps = num_scales - 1
    span = group_size - min_scale
    return tuple(min_scale + (2 * j * span + steps) // (2 * steps) for j in range(num_scales))


WeightedScales = tuple[tuple[int, float], ...]
"""Pairs (scale, weight > 0), scales ascending and distinct, weights summing to 1."""


@functools.lru_cache(maxsize=4096)
def weighted_scales(group_size: int, config: MSGRPOConfig) -> WeightedScales:
    """The scales of one group with their weights.

    Args:
        group_size: number of responses that count, >= 2.
        config: uses scales, num_scales, min_scale and scale_weights.

    Returns:
        Pairs (scale, weight > 0), scales ascending and distinct, 2 <= scale <= group_size, weights
        summing to 1.
    """
    lowest = min(config.min_scale, group_size)
    if config.scales is not None:
        scales = [min(scale, group_size) for scale in config.scales]
    elif config.num_scales is not None:
        # More scales than sizes would only count some sizes twice: then take each size once.
        sizes = group_size - lowest + 1
        weighted = config.scale_weights is not None
        count = config.num_scales if weighted else min(config.num_scales, sizes)
        scales = list(dilated_scales(group_size, count, lowest))
    else:
        scales = list(range(lowest, group_size + 1))
    weights = config.scale_weights or [1.0] * len(scales)
    largest = max(weights)  # divided out first, so that huge weights do not overflow
    summed: dict[int, float] = {}
    for scale, weight in zip(scales, weights, strict=True):
        summed[scale] = summed.get(scale, 0.0) + weight / largest
    total = sum(summed.values())
    return tuple((scale, summed[scale] / total) for scale in sorted(summed) if summed[scale] > 0)
