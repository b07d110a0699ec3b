"""The exact average over all subgroups, without enumerating them all.

A subgroup matters only through how many of its members have each distinct reward value. With V
distinct values x_1 < .. < x_V that occur c_1 .. c_V times, a *term* is a vector k with
0 <= k_v <= c_v; it stands for prod_v C(c_v, k_v) subgroups of size tau = sum_v k_v. A member with
value x_v finds itself in a random subgroup of size tau with counts k with probability

    prod_u C(c_u, k_u) / C(G, tau) * (k_v / c_v) * (G / tau),

so that its advantage is a sum over terms. Written with differences of pairs, nothing in that sum
is ever subtracted but the rewards themselves, and so nothing cancels:

    tau * (sum of squared deviations) = sum_{u<v} k_u k_v (x_u - x_v)^2
    tau * (x_v - mean)                = sum_u k_u (x_v - x_u)
    A_v = 1/c_v * sum_u (x_v - x_u) * sum_k  p_k k_u k_v / (std_k + epsilon)

The values are dealt into two halves, a and b, so that every term is a pair of one row of each
half's table of counts: the sums over terms become small matrix products.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import torch

from verl_msgrpo.config import MAX_TERMS
from verl_msgrpo.scales import WeightedScales

CELLS_AT_ONCE = 2**17  # of the (groups, rows, columns) intermediate: 1 MiB each, stays in cache
TABLE_CELLS = 2**27  # terms times distinct values; the tables of counts are never larger
CELLS_WITHOUT_THOUGHT = 2**13  # so many are cheaper than many small products
CACHED_CELLS = 2**16  # tables above this size are rebuilt instead of kept


@dataclasses.dataclass(frozen=True, eq=False)
class Tile:
    """A rectangle of terms: every row of counts of half a with every row of half b.

    Attributes:
        counts_a, counts_b: (R_a, V_a) and (R_b, V_b) float64, members per distinct value.
        weight: (R_a, R_b) float64, the p_k above times root / tau; 0 for no term.
        root: (R_a, R_b) float64, sqrt(tau (tau - 1)).
    """

    counts_a: torch.Tensor
    counts_b: torch.Tensor
    weight: torch.Tensor
    root: torch.Tensor


def most_terms(distinct: int) -> int:
    """Terms that a group of that many distinct rewards may have within 1 GiB of memory."""
    return min(MAX_TERMS, max(1, TABLE_CELLS // distinct))


@functools.lru_cache(maxsize=4096)
def count_terms(counts: tuple[int, ...], scales: tuple[int, ...]) -> int:
    """Counts the terms of one group, before anything is enumerated.

    Args:
        counts: how often each distinct reward value occurs.
        scales: distinct subgroup sizes that have a weight.

    Returns:
        number of terms with two or more different values (clipped at 2**53).
    """
    limit = 2.0**53
    by_size = np.ones(1)
    for count in counts:
        by_size = np.minimum(np.convolve(by_size, np.ones(count + 1)), limit)
    same = sum(count >= scale for count in counts for scale in scales)
    return int(min(sum(by_size[scale] for scale in scales), limit)) - same


def advantages_over_all(
    values: torch.Tensor, counts: tuple[int, ...], scales: WeightedScales, epsilon: torch.Tensor
) -> torch.Tensor:
    """Multi-scale advantage of each distinct value, divided by the std, over all subgroups.

    Groups must share their `counts`; those sorted alike share one cached plan.

    Args:
        values: (n, V) float64, V >= 2 distinct finite rewards of each of n groups, in any order,
            with a range near 1.
        counts: V numbers of members, of every group.
        scales: pairs (tau, weight), 2 <= tau <= sum of counts.
        epsilon: (n,) float64, 0 .. 1e300, in units of `values`.

    Returns:
        (n, V) float64.
    """
    half_a, half_b, tiles = _plan(counts, scales)
    per_group = max(
        max(len(tile.counts_a) * len(tile.counts_b) for tile in tiles),
        max(tile.counts_a.numel() + tile.counts_b.numel() for tile in tiles),
        len(counts) ** 2,
    )
    step = max(1, CELLS_AT_ONCE // per_group)
    result = torch.empty_like(values)
    for start in range(0, len(values), step):
        part = slice(start, start + step)
        result[part, half_a], result[part, half_b] = _advantages_of_halves(
            values[part, half_a], values[part, half_b], tiles, epsilon[part]
        )
    return result / torch.tensor(counts, dtype=torch.float64)


def undivided_advantages(rewards: torch.Tensor, scales: WeightedScales) -> torch.Tensor:
    """Multi-scale advantages over all subgroups, not divided by the std (Dr. GRPO's form).

    They are f * (r_i - mean) with f = sum over tau of w_tau (tau - 1) / tau * G / (G - 1): the mean
    over the subgroups with i holds r_i itself, and everybody else equally often.

    Args:
        rewards: (n, G) float64, finite.
        scales: pairs (tau, weight), 2 <= tau <= G.

    Returns:
        (n, G) float64.
    """
    group_size = rewards.shape[1]
    factor = sum(weight * (tau - 1) / tau for tau, weight in scales)
    factor *= group_size / (group_size - 1)
    return factor * (rewards - rewards.mean(dim=1, keepdim=True))


def _advantages_of_halves(
    a: torch.Tensor, b: torch.Tensor, tiles: Sequence[Tile], epsilon: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """c_v * A_v for the values a (n, V_a) and b (n, V_b) of each half."""
    gap_aa = a[:, :, None] - a[:, None, :]
    gap_bb = b[:, :, None] - b[:, None, :]
    gap_ba = b[:, :, None] - a[:, None, :]
    square_aa, square_bb, square_ba = gap_aa.square(), gap_bb.square(), gap_ba.square()
    # sum over terms of weight / (std + epsilon) * k_u * k_v
    pull_aa, pull_bb = torch.zeros_like(gap_aa), torch.zeros_like(gap_bb)
    pull_ba = torch.zeros_like(gap_ba)
    for tile in tiles:
        k_a, k_b = tile.counts_a, tile.counts_b
        # Contiguous, because torch then takes (n, ., .) @ matrix as one product instead of n.
        t_a, t_b = k_a.T.contiguous(), k_b.T.contiguous()
        within_a = ((square_aa @ t_a) * t_a).sum(dim=1) / 2
        within_b = ((square_bb @ t_b) * t_b).sum(dim=1) / 2
        cells = (square_ba @ t_a).mT.contiguous() @ t_b
        cells += within_a[:, :, None]
        cells += within_b[:, None, :]
        # Cells that are no term have weight 0 and may have no spread: 0 / tiny instead of 0 / 0.
        cells.clamp_(min=1e-300).sqrt_()
        cells.addcmul_(epsilon[:, None, None], tile.root)
        torch.div(tile.weight, cells, out=cells)
        pull_ba += (cells @ k_b).mT.contiguous() @ k_a
        pull_aa += (t_a * cells.sum(dim=2)[:, None, :]) @ k_a
        pull_bb += (t_b * cells.sum(dim=1)[:, None, :]) @ k_b
    across = gap_ba * pull_ba
    return (
        (gap_aa * pull_aa).sum(dim=2) - across.sum(dim=1),
        (gap_bb * pull_bb).sum(dim=2) + across.sum(dim=2),
    )


Plan = tuple[list[int], list[int], list[Tile]]


def _plan(counts: tuple[int, ...], scales: WeightedScales) -> Plan:
    if count_terms(counts, tuple(scale for scale, _ in scales)) > CACHED_CELLS:
        return _build_plan(counts, scales)
    return _cached_plan(counts, scales)


def _build_plan(counts: tuple[int, ...], scales: WeightedScales) -> Plan:
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
    table_a = _rows(counts_a, sizes, sum(counts_b))
    table_b = _rows(counts_b, sizes, sum(counts_a))
    log_ways_a = _log_binomials(counts_a, table_a)
    log_ways_b = _log_binomials(counts_b, table_b)
    size_a, size_b = table_a.sum(axis=1), table_b.sum(axis=1)

    group_size = sum(counts)
    weights = np.array([weight for _, weight in scales])
    log_weight = np.full(group_size + 1, -np.inf)
    log_weight[sizes] = np.log(weights * group_size / sizes**2)
    log_weight[sizes] -= _log_binomials([group_size], sizes[:, None])

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
    return half_a, half_b, tiles


_cached_plan = functools.lru_cache(maxsize=256)(_build_plan)


def _rows(counts: Sequence[int], sizes: np.ndarray, others: int) -> np.ndarray:
    """All vectors 0 <= k <= counts that some `others` can fill up to a size in `sizes`.

    Pruned after every value, so that each row kept on the way belongs to at least one term.

    Returns:
        (R, V) int64.
    """
    table = np.zeros((1, 0), dtype=np.int64)
    room = sum(counts) + others
    for count in counts:
        room -= count
        longer = np.repeat(table, count + 1, axis=0)
        added = np.tile(np.arange(count + 1), len(table))
        table = np.concatenate([longer, added[:, None]], axis=1)
        size = table.sum(axis=1)
        following = np.searchsorted(sizes, size)
        reachable = following < len(sizes)
        reachable &= sizes[np.minimum(following, len(sizes) - 1)] <= size + room
        table = table[reachable]
    return table


def _rectangles(
    size_a: np.ndarray, size_b: np.ndarray, sizes: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Row numbers of both tables that together hold every pair whose size is in `sizes`."""
    number_a, number_b = np.bincount(size_a), np.bincount(size_b)
    size_ab = np.arange(len(number_a))[:, None] + np.arange(len(number_b))
    pairs = np.outer(number_a, number_b) * np.isin(size_ab, sizes)
    useful = pairs.sum()
    if len(size_a) * len(size_b) <= max(4 * useful, CELLS_WITHOUT_THOUGHT):
        parts = [(np.arange(len(size_a)), np.arange(len(size_b)))]
    else:  # few scales: one rectangle a pair of sizes wastes nothing
        parts = [
            (np.flatnonzero(size_a == s_a), np.flatnonzero(size_b == s_b))
            for s_a, s_b in np.argwhere(pairs)
        ]
    split = []
    for part_a, part_b in parts:
        step = max(1, CELLS_AT_ONCE // len(part_b))
        split += [(part_a[i : i + step], part_b) for i in range(0, len(part_a), step)]
    return split


def _log_binomials(counts: Sequence[int], table: np.ndarray) -> np.ndarray:
    """Logarithm of prod_v C(counts_v, table[:, v]); binomials themselves overflow at large G."""
    limits = np.array(counts, dtype=np.int64)
    numbers = torch.arange(1, limits.max(initial=0) + 2, dtype=torch.float64)
    log_factorial = torch.lgamma(numbers).numpy()
    terms = log_factorial[limits] - log_factorial[table] - log_factorial[limits - table]
    return terms.sum(axis=1)
