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

Few terms are taken as one table (term_table.py), many as rectangles (term_tiles.py).
"""

import functools

import numpy as np
import torch

from verl_msgrpo.config import MAX_TERMS
from verl_msgrpo.scales import WeightedScales
from verl_msgrpo.term_table import TermTable, advantages_over_table, term_table
from verl_msgrpo.term_tiles import TermTiles, advantages_over_tiles, term_tiles

TABLE_CELLS = 2**27  # terms times distinct values; the tables of counts are never larger
CACHED_TERMS = 2**16  # plans of more terms are made anew instead of kept
SMALL_TABLE = 2**16  # terms times pairs of values, and pairs squared; above it tiles are quicker


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
    plan = _plan(counts, scales)
    if isinstance(plan, TermTable):
        of_members = advantages_over_table(values, plan, epsilon)
    else:
        of_members = advantages_over_tiles(values, plan, epsilon)
    return of_members / torch.tensor(counts, dtype=torch.float64)


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


def _plan(counts: tuple[int, ...], scales: WeightedScales) -> TermTable | TermTiles:
    terms = count_terms(counts, tuple(scale for scale, _ in scales))
    return _cached_plan(counts, scales) if terms <= CACHED_TERMS else term_tiles(counts, scales)


@functools.lru_cache(maxsize=256)
def _cached_plan(counts: tuple[int, ...], scales: WeightedScales) -> TermTable | TermTiles:
    terms = count_terms(counts, tuple(scale for scale, _ in scales))
    pairs = len(counts) * (len(counts) - 1) // 2
    if pairs * max(terms, pairs) <= SMALL_TABLE:
        return term_table(counts, scales)
    return term_tiles(counts, scales)
