"""The terms of a group: how many members of each distinct value a subgroup has, and its weight."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from verl_msgrpo.scales import WeightedScales

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
    """weight / (sqrt(squares) + epsilon * root), broadcast, in the memory of `squares`.

    Squares of tiny gaps underflow, and cells that are no term have weight 0 and may have no spread:
    0 / tiny instead of 0 / 0.
    """
    squares.clamp_(min=1e-300).sqrt_()
    squares.addcmul_(epsilon, root)
    return torch.div(weight, squares, out=squares)


def log_weights(group_size: int, scales: WeightedScales) -> Floats:
    """log(w_tau * G / tau^2 / C(G, tau)) for tau = 0 .. G; -inf where tau is no scale."""
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
