"""The average over all subgroups where there are few terms, as one table of them."""

from typing import NamedTuple

import numpy as np
import torch

from verl_msgrpo.scales import WeightedScales
from verl_msgrpo.terms import log_binomials, log_weights, term_rows, weights_over_std

CELLS_AT_ONCE = 2**16  # of the (groups, terms) intermediate: 512 KiB, stays in cache


class TermTable(NamedTuple):
    """All R terms of groups with the same counts, and the pairs u < v of their V distinct values.

    first, second: (pairs,) int64, u and v.
    products: (R, pairs) float64, k_u * k_v.
    products_by_pair: the same transposed, (pairs, R).
    weight: (R,) float64, the p_k of all_subgroups.py times root / tau.
    root: (R,) float64, sqrt(tau (tau - 1)).
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
    """As `term_tiles.advantages_over_tiles`."""
    step = max(1, CELLS_AT_ONCE // max(table.products.shape))
    parts = zip(values.split(step), epsilon.split(step), strict=True)
    return torch.cat([_advantages(part, table, eps) for part, eps in parts])


def _advantages(values: torch.Tensor, table: TermTable, epsilon: torch.Tensor) -> torch.Tensor:
    gaps = values[:, table.first] - values[:, table.second]
    squares = gaps.square() @ table.products_by_pair
    cells = weights_over_std(squares, table.weight, table.root, epsilon[:, None])
    return (gaps * (cells @ table.products)) @ table.signs
