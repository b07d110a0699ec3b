"""Rows become groups: those of one size together, in units in which nothing over- or underflows.

Also decided here: which rewards of a group count as equal, and which groups have a *signal*, that
is, rewards that differ.
"""

from typing import NamedTuple

import numpy as np
import torch

ULPS = 8  # rewards that are equal but for the rounding of their sums differ by a few units


class Pattern(NamedTuple):
    """The groups of a block whose distinct values occur equally often.

    groups: n numbers of groups within the block.
    values: (n, V) float64, the distinct values.
    place: (n, G) int64, which of them each response has.
    """

    groups: list[int]
    values: torch.Tensor
    place: torch.Tensor


class Block(NamedTuple):
    """The groups of one size that have a signal.

    rows: (n, G) int64, where the rewards of each group lie.
    values: (n, G) float64, rewards in units of 2**exponent: ties equal, range in [0.5, 1).
    exponent: (n, 1) int32.
    patterns: numbers of members that have each distinct value -> the groups like that.
    """

    rows: torch.Tensor
    values: torch.Tensor
    exponent: torch.Tensor
    patterns: dict[tuple[int, ...], Pattern]

    def in_units(self, reward: float) -> torch.Tensor:
        """(n,) float64: a difference of rewards, such as epsilon, in the units of each group."""
        column = torch.full((len(self.values), 1), reward, dtype=torch.float64)
        return times_power_of_two(column, -self.exponent)[:, 0].clamp(max=1e300)

    def in_rewards(self, differences: torch.Tensor) -> torch.Tensor:
        """Differences of values, one row per group, as differences of rewards."""
        return times_power_of_two(differences, self.exponent)


def blocks_of_equal_size(
    flat: torch.Tensor, group_index: torch.Tensor, dtype: torch.dtype
) -> tuple[list[Block], int]:
    """Sorts the finite rewards into blocks of equally large groups; leaves out what gets 0.

    Args:
        flat: (N,) float64 rewards.
        group_index: (N,) integer.
        dtype: floating dtype in which the rewards came.

    Returns:
        the blocks, and the number of all groups.
    """
    counted = flat.isfinite().nonzero()[:, 0]
    numbers, group, size = group_index[counted].unique(return_inverse=True, return_counts=True)
    groups = len(numbers) if len(counted) == len(flat) else len(group_index.unique())
    by_group = counted[group.argsort(stable=True)]
    first = size.cumsum(0) - size
    blocks = []
    for group_size in size.unique().tolist():
        if group_size < 2:
            continue
        rows = by_group[first[size == group_size, None] + torch.arange(group_size)]
        values, magnitude = unit_magnitude(flat[rows])
        varied = has_variance(values, magnitude, dtype)
        if varied.any():
            values, spread = unit_range(merge_ties(values[varied], dtype))
            exponent = magnitude[varied] + spread
            blocks.append(Block(rows[varied], values, exponent, _patterns(values)))
    return blocks, groups


def _patterns(values: torch.Tensor) -> dict[tuple[int, ...], Pattern]:
    """Finds the distinct values of each group, the most frequent first, and who has them."""
    ascending, order = values.sort(dim=1)
    rank = torch.zeros_like(order)
    rank[:, 1:] = (ascending.diff(dim=1) > 0).cumsum(dim=1)
    counts = torch.zeros_like(order).scatter_add_(1, rank, torch.ones_like(rank))
    counts, column = counts.sort(dim=1, descending=True, stable=True)
    distinct = torch.zeros_like(values).scatter_(1, rank, ascending).gather(1, column)
    place_of_rank = column.argsort(dim=1)  # the inverse permutation
    place = torch.empty_like(order).scatter_(1, order, place_of_rank.gather(1, rank))
    groups: dict[bytes, list[int]] = {}
    for number, row in enumerate(counts.to(torch.int32).numpy()):
        groups.setdefault(row.tobytes(), []).append(number)
    patterns = {}
    for alike in groups.values():
        pattern = tuple(count for count in counts[alike[0]].tolist() if count)
        patterns[pattern] = Pattern(alike, distinct[alike, : len(pattern)], place[alike])
    return patterns


def times_power_of_two(numbers: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """numbers * 2**exponent, exact (torch.ldexp goes through float32), float64 on the CPU."""
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.ldexp(numbers.numpy(), exponent.numpy()))


def unit_magnitude(rewards: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales each group by a power of two so that its largest |reward| lies in [0.5, 1).

    Args:
        rewards: (P, G) float64, finite, G >= 1.

    Returns:
        scaled (P, G) float64 and exponent (P, 1) int32, with rewards = scaled * 2**exponent.
    """
    exponent = torch.frexp(rewards.abs().amax(dim=1, keepdim=True)).exponent
    return times_power_of_two(rewards, -exponent), exponent


def has_variance(scaled: torch.Tensor, exponent: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Tells which groups have anything to compare.

    Args:
        scaled, exponent: (P, G) and (P, 1), as `unit_magnitude` gives them.
        dtype: floating dtype in which the rewards came.

    Returns:
        (P,) bool: False where the range of the group is at most 8 ulp of its largest |reward|.
    """
    info = torch.finfo(dtype)
    # eps is the ulp of [1, 2); that of subnormal numbers is constant.
    subnormal = torch.tensor(info.tiny * info.eps, dtype=torch.float64)
    ulp = times_power_of_two(subnormal, -exponent)[:, 0].clamp(min=info.eps / 2)
    lowest, highest = scaled.aminmax(dim=1)
    return highest - lowest > ULPS * ulp


def merge_ties(scaled: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Makes rewards that differ by rounding noise only exactly equal.

    Inside a group, a subgroup of nearly equal rewards would otherwise divide noise by its own tiny
    standard deviation. A reward becomes the lowest of those within 8 ulp below it (our choice; of
    float32 if `dtype` is coarser, because its neighbouring floats are levels and not noise).
    Rewards that differ by less than 2**-400 of the largest are merged too: their square underflows.

    Args:
        scaled: (P, G) float64, the largest |reward| of each row in [0.5, 1).
        dtype: floating dtype in which the rewards came.

    Returns:
        (P, G) float64.
    """
    eps = min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    ascending, order = scaled.sort(dim=1)
    magnitude = torch.maximum(ascending[:, :-1].abs(), ascending[:, 1:].abs())
    ulp = torch.from_numpy(np.spacing(magnitude.numpy())) * (eps / torch.finfo(torch.float64).eps)
    noise = (ULPS * ulp).clamp(min=2.0**-400)
    steps = ascending.diff(dim=1)
    if not ((steps > 0) & (steps <= noise)).any():
        return scaled
    anchors = [ascending[:, 0]]
    for j in range(1, scaled.shape[1]):
        close = ascending[:, j] - anchors[-1] <= noise[:, j - 1]
        anchors.append(torch.where(close, anchors[-1], ascending[:, j]))
    return torch.empty_like(scaled).scatter_(1, order, torch.stack(anchors, dim=1))


def unit_range(scaled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales each group by a power of two so that its range lies in [0.5, 1).

    Args:
        scaled: (P, G) float64, every row with a range above 0.

    Returns:
        (P, G) float64 and exponent (P, 1) int32, with scaled = result * 2**exponent.
    """
    lowest, highest = scaled.aminmax(dim=1, keepdim=True)
    exponent = torch.frexp(highest - lowest).exponent
    return times_power_of_two(scaled, -exponent), exponent
