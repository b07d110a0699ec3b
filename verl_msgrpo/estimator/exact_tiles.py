"""The sum of exact.py where there are many terms, as rectangles of them.

The distinct values are dealt into two halves, a and b, so that every term k is a pair of one row of
each half's table of counts: the sums over terms become small matrix products, which take much less
than the number of terms times the number of pairs of values. The symbols are those of exact.py.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from verl_msgrpo.estimator.exact import (
    Ints,
    log_binomials,
    log_weights,
    term_rows,
    weights_over_std,
)
from verl_msgrpo.estimator.scales import WeightedScales

CELLS_AT_ONCE = 2**17  # of the (groups, rows, columns) intermediate: 1 MiB each, stays in cache
CELLS_WITHOUT_THOUGHT = 2**13  # so many are cheaper than many small products


@dataclasses.dataclass(frozen=True, eq=False)
class Tile:
    """A rectangle of terms: every row of counts of half a with every row of half b.

    Attributes:
        counts_a, counts_b: (R_a, V_a) and (R_b, V_b) float64, members per distinct value.
        weight: (R_a, R_b) float64, (p_k / tau) root_k; 0 where the pair is not a term.
        root: (R_a, R_b) float64, root_k = sqrt(tau (tau - 1)).
    """

    counts_a: torch.Tensor
    counts_b: torch.Tensor
    weight: torch.Tensor
    root: torch.Tensor


class TermTiles(NamedTuple):
    """All terms of groups with the same counts.

    half_a, half_b: numbers of the distinct values in each half.
    tiles: these together hold every term once.
    """

    half_a: list[int]
    half_b: list[int]
    tiles: list[Tile]


def term_tiles(counts: tuple[int, ...], scales: WeightedScales) -> TermTiles:
    """Deals the values into two halves (their column numbers) and lays out the tiles."""
    half_a: list[int] = []
    half_b: list[int] = []
    rows_a = rows_b = 1
    for column in sorted(range(len(counts)), key=lambda column: -counts[column]):
        if rows_a <= rows_b:
            half_a.append(column)
            rows_a *= counts[column] + 1
        else:
            half_b.append(column)
            rows_b *= counts[column] + 1
    counts_a = [counts[column] for column in half_a]
    counts_b = [counts[column] for column in half_b]
    sizes = np.array([scale for scale, _ in scales])
    table_a = term_rows(counts_a, sizes, sum(counts_b))
    table_b = term_rows(counts_b, sizes, sum(counts_a))
    log_ways_a = log_binomials(counts_a, table_a)
    log_ways_b = log_binomials(counts_b, table_b)
    size_a, size_b = table_a.sum(axis=1), table_b.sum(axis=1)

    log_weight = log_weights(sum(counts), scales)
    tiles = []
    for part_a, part_b in _rectangles(size_a, size_b, sizes):
        size = size_a[part_a, None] + size_b[None, part_b]
        root = np.sqrt(np.maximum(size * (size - 1.0), 0.0))
        log_ways = log_ways_a[part_a, None] + log_ways_b[None, part_b]
        weight = np.exp(log_ways + log_weight[size]) * root
        kinds_a = (table_a[part_a] > 0).sum(axis=1)
        kinds_b = (table_b[part_b] > 0).sum(axis=1)
        weight[kinds_a[:, None] + kinds_b[None, :] < 2] = 0.0
        tiles.append(
            Tile(
                torch.from_numpy(table_a[part_a].astype(np.float64)),
                torch.from_numpy(table_b[part_b].astype(np.float64)),
                torch.from_numpy(weight),
                torch.from_numpy(root),
            )
        )
    return TermTiles(half_a, half_b, tiles)


def advantages_over_tiles(
    values: torch.Tensor, plan: TermTiles, epsilon: torch.Tensor
) -> torch.Tensor:
    """As `exact.advantages_over_table`, for a plan of tiles."""
    half_a, half_b, tiles = plan
    per_group = max(
        max(len(tile.counts_a) * len(tile.counts_b) for tile in tiles),
        max(tile.counts_a.numel() + tile.counts_b.numel() for tile in tiles),
        values.shape[1] ** 2,
    )
    step = max(1, CELLS_AT_ONCE // per_group)
    result = torch.empty_like(values)
    for start in range(0, len(values), step):
        part = slice(start, start + step)
        result[part, half_a], result[part, half_b] = _advantages_of_halves(
            values[part, half_a], values[part, half_b], tiles, epsilon[part]
        )
    return result


def _advantages_of_halves(
    a: torch.Tensor, b: torch.Tensor, tiles: Sequence[Tile], epsilon: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """c_v A_v for the values a (n, V_a) and b (n, V_b) of each half."""
    gap_aa = a[:, :, None] - a[:, None, :]
    gap_bb = b[:, :, None] - b[:, None, :]
    gap_ba = b[:, :, None] - a[:, None, :]
    square_aa, square_bb, square_ba = gap_aa.square(), gap_bb.square(), gap_ba.square()
    # sum over terms of (p_k / tau) k_u k_v / (std_k + epsilon)
    pull_aa, pull_bb = torch.zeros_like(gap_aa), torch.zeros_like(gap_bb)
    pull_ba = torch.zeros_like(gap_ba)
    for tile in tiles:
        k_a, k_b = tile.counts_a, tile.counts_b
        # Contiguous, because torch then takes (n, ., .) @ matrix as one product instead of n.
        t_a, t_b = k_a.T.contiguous(), k_b.T.contiguous()
        within_a = ((square_aa @ t_a) * t_a).sum(dim=1) / 2
        within_b = ((square_bb @ t_b) * t_b).sum(dim=1) / 2
        squares = (square_ba @ t_a).mT.contiguous() @ t_b
        squares += within_a[:, :, None]
        squares += within_b[:, None, :]
        cells = weights_over_std(squares, tile.weight, tile.root, epsilon[:, None, None])
        pull_ba += (cells @ k_b).mT.contiguous() @ k_a
        pull_aa += (t_a * cells.sum(dim=2)[:, None, :]) @ k_a
        pull_bb += (t_b * cells.sum(dim=1)[:, None, :]) @ k_b
    across = gap_ba * pull_ba
    return (
        (gap_aa * pull_aa).sum(dim=2) - across.sum(dim=1),
        (gap_bb * pull_bb).sum(dim=2) + across.sum(dim=2),
    )


def _rectangles(size_a: Ints, size_b: Ints, sizes: Ints) -> list[tuple[Ints, Ints]]:
    """Row numbers of both tables that together hold every pair whose size is in `sizes`."""
    number_a, number_b = np.bincount(size_a), np.bincount(size_b)
    size_ab = np.arange(len(number_a))[:, None] + np.arange(len(number_b))
    pairs = np.outer(number_a, number_b) * np.isin(size_ab, sizes)
    useful = pairs.sum()
    if len(size_a) * len(size_b) <= max(4 * useful, CELLS_WITHOUT_THOUGHT):
        parts = [(np.arange(len(size_a)), np.arange(len(size_b)))]
    else:  # few scales: one rectangle per pair of sizes wastes nothing
        parts = [
            (np.flatnonzero(size_a == s_a), np.flatnonzero(size_b == s_b))
            for s_a, s_b in np.argwhere(pairs)
        ]
    split = []
    for part_a, part_b in parts:
        step = max(1, CELLS_AT_ONCE // len(part_b))
        split += [(part_a[i : i + step], part_b) for i in range(0, len(part_a), step)]
    return split
