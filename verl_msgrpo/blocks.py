"""Rows that belong to groups, sorted into blocks of groups of one size."""

from typing import NamedTuple

import torch

from verl_msgrpo.reward_values import has_variance, merge_ties, unit_magnitude, unit_range


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
    """The groups of one size that have something to compare.

    rows: (n, G) int64, where the rewards of each group lie.
    values: (n, G) float64, rewards in units of 2**exponent: ties equal, range in [0.5, 1).
    exponent: (n, 1) int32.
    patterns: numbers of members that have each distinct value -> the groups like that.
    """

    rows: torch.Tensor
    values: torch.Tensor
    exponent: torch.Tensor
    patterns: dict[tuple[int, ...], Pattern]


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
