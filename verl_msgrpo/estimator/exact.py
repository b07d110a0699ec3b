"""The average over all subgroups, exactly, without visiting equal ones twice.

The derivation. A group has V distinct rewards x_1 .. x_V; x_v occurs c_v times, and the c_v add up
to G. A subgroup matters only through how many members of each value it has. Call such a vector
k = (k_1 .. k_V), 0 <= k_v <= c_v, a *term*, and let tau be the sum of its k_v:

    prod_u C(c_u, k_u)                subgroups of size tau have the counts k, and each of them has
    m_k   = sum_u k_u x_u / tau       as mean, and
    std_k = sqrt(sum_u k_u (x_u - m_k)^2 / (tau - 1))   as standard deviation.

A response i with value x_v is in C(G - 1, tau - 1) = C(G, tau) tau / G subgroups of size tau. Of
the subgroups with counts k it is in the share k_v / c_v, as its c_v equals are interchangeable.
With the weight of its scale, w_tau, the term therefore has, in the advantage of i, the weight
p_k k_v / c_v, where

    p_k = w_tau  G / tau  prod_u C(c_u, k_u) / C(G, tau)
    A_v = 1 / c_v  sum_k  p_k k_v (x_v - m_k) / (std_k + epsilon).

Written with the gaps between values, nothing is subtracted but the rewards themselves, so nothing
cancels:

    tau (x_v - m_k)         = sum_u  k_u (x_v - x_u)
    tau (tau - 1) std_k^2   = sum_{u<v}  k_u k_v (x_u - x_v)^2  =: q_k
    A_v = 1 / c_v  sum_u (x_v - x_u)  sum_k  (p_k / tau) k_u k_v / (std_k + epsilon).

That is what is computed below, with root_k = sqrt(tau (tau - 1)), so std_k = sqrt(q_k) / root_k:

    (p_k / tau) / (std_k + epsilon) = (p_k / tau) root_k / (sqrt(q_k) + epsilon root_k).

There are at most prod_v (c_v + 1) terms, whatever G is: binary rewards at G = 64 have about a
thousand. Rewards that all differ are the plain case of 2^G; exact_tiles.py has the same sum for
many terms. Terms with one value only have nothing to compare and are left out.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from verl_msgrpo.estimator.config import MAX_TERMS
from verl_msgrpo.estimator.scales import WeightedScales

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TABLE_CELLS = 2**27  # terms times distinct values; the tables of counts are never larger
CELLS_AT_ONCE = 2**16  # of the (groups, terms) intermediate: 512 KiB, stays in cache


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


class TermTable(NamedTuple):
    """All R terms of groups with the same counts, and the pairs u < v of their V distinct values.

    first, second: (pairs,) int64, u and v.
    products: (R, pairs) float64, k_u k_v.
    products_by_pair: the same transposed, (pairs, R).
    weight: (R,) float64, (p_k / tau) root_k.
    root: (R,) float64, root_k.
    signs: (pairs, V) float64, 1 at u and -1 at v.
    """

    first: torch.Tensor
    second: torch.Tensor
    products: torch.Tensor
    products_by_pair: torch.Tensor
    weight: torch.Tensor
    root: torch.Tensor
    signs: torch.Tensor


def term_table(counts: tuple[int, ...], scales: WeightedScales) -> TermTable:
    """Enumerates the terms of groups whose distinct values occur `counts` times."""
    rows = term_rows(counts, np.array([scale for scale, _ in scales]))
    rows = rows[(rows > 0).sum(axis=1) > 1]  # the others have nothing to compare
    size = rows.sum(axis=1)
    root = np.sqrt(size * (size - 1.0))
    weight = np.exp(log_binomials(counts, rows) + log_weights(sum(counts), scales)[size]) * root
    first, second = np.triu_indices(len(counts), 1)
    products = (rows[:, first] * rows[:, second]).astype(np.float64)
    signs = np.eye(len(counts))[first] - np.eye(len(counts))[second]
    return TermTable(
        first=torch.from_numpy(first),
        second=torch.from_numpy(second),
        products=torch.from_numpy(products),
        products_by_pair=torch.from_numpy(products.T.copy()),
        weight=torch.from_numpy(weight),
        root=torch.from_numpy(root),
        signs=torch.from_numpy(signs),
    )


def advantages_over_table(
    values: torch.Tensor, table: TermTable, epsilon: torch.Tensor
) -> torch.Tensor:
    """Sum of the advantages of the c_v members with each value, over all subgroups.

    Args:
        values: (n, V) float64, distinct finite rewards of n groups with the same counts, with a
            range near 1.
        table: of these counts.
        epsilon: (n,) float64, 0 .. 1e300, in units of `values`.

    Returns:
        (n, V) float64, c_v A_v.
    """
    step = max(1, CELLS_AT_ONCE // max(table.products.shape))
    parts = zip(values.split(step), epsilon.split(step), strict=True)
    return torch.cat([_advantages(part, table, eps) for part, eps in parts])


def _advantages(values: torch.Tensor, table: TermTable, epsilon: torch.Tensor) -> torch.Tensor:
    gaps = values[:, table.first] - values[:, table.second]
    squares = gaps.square() @ table.products_by_pair
    cells = weights_over_std(squares, table.weight, table.root, epsilon[:, None])
    return (gaps * (cells @ table.products)) @ table.signs


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


def term_rows(counts: Sequence[int], sizes: Ints, others: int = 0) -> Ints:
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


def weights_over_std(
    squares: torch.Tensor, weight: torch.Tensor, root: torch.Tensor, epsilon: torch.Tensor
) -> torch.Tensor:
    """(p_k / tau) / (std_k + epsilon) of each term, broadcast, in the memory of the `squares` q_k.

    Squares of tiny gaps underflow, and cells that are not a term have weight 0 and may have no
    spread: 0 / tiny instead of 0 / 0.
    """
    squares.clamp_(min=1e-300).sqrt_()
    squares.addcmul_(epsilon, root)
    return torch.div(weight, squares, out=squares)


def log_weights(group_size: int, scales: WeightedScales) -> Floats:
    """log(w_tau G / tau^2 / C(G, tau)) for tau = 0 .. G; -inf where tau is not a scale."""
    sizes = np.array([scale for scale, _ in scales])
    weights = np.array([weight for _, weight in scales])
    result = np.full(group_size + 1, -np.inf)
    result[sizes] = np.log(weights * group_size / sizes**2)
    result[sizes] -= log_binomials([group_size], sizes[:, None])
    return result


def log_binomials(counts: Sequence[int], table: Ints) -> Floats:
    """Logarithm of prod_v C(counts_v, table[:, v]); binomials themselves overflow at large G."""
    limits = np.array(counts, dtype=np.int64)
    numbers = torch.arange(1, limits.max(initial=0) + 2, dtype=torch.float64)
    log_factorial = torch.lgamma(numbers).numpy()
    terms = log_factorial[limits] - log_factorial[table] - log_factorial[limits - table]
    return terms.sum(axis=1)
