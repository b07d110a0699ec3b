"""A few subgroups per scale: which ones "diverse" takes, and the average over them.

The paper chooses K subgroups of each size that are far apart in Jaccard distance. How to find them,
and that every response is in equally many of them, is our choice.

Two subgroups of tau members that share n of them have the distance 1 - n / (2 tau - n). Balance
fixes the sum of n over all pairs of subgroups, and the distance is concave in n: the smallest and
the mean distance are both at their best where all n are as equal as possible. The search evens them
out, by exchanges of two members that keep the balance.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch

RANDOM_DESIGNS = 1000  # the result is never worse than the best of that many, ...
LARGE_DESIGN = 2**9  # ... unless the design has more entries (K' times G): one restart, to be quick
RESTARTS = 8  # at most, ...
ALL_EXCHANGES = 2000  # ... and while they may make no more than that many together
EXCHANGES = 1000  # at most, per restart
CANDIDATES = 64  # members per subgroup that an exchange is chosen from
VALUES_AT_ONCE = 2**20  # of the (groups, subgroups, members) intermediate: 8 MiB each


def advantages_over_design(
    rewards: torch.Tensor,
    subgroups: Sequence[tuple[torch.Tensor, float]],
    epsilon: torch.Tensor | None,
) -> torch.Tensor:
    """Averages subgroup advantages over the chosen subgroups that contain a response.

    Args:
        rewards: (n, G) float64, finite.
        subgroups: one pair per scale: (K, tau) int64 members of each subgroup, everybody in at
            least one, and the weight of the scale.
        epsilon: (n,) float64, 0 .. 1e300, added to the std; None: do not divide.

    Returns:
        (n, G) float64; equal rewards of a subgroup contribute exactly 0.
    """
    result = torch.zeros_like(rewards)
    for members, weight in subgroups:
        step = max(1, VALUES_AT_ONCE // members.numel())
        flat = members.flatten()
        share = weight / torch.bincount(flat, minlength=rewards.shape[1]).double()
        for start in range(0, len(rewards), step):
            part = slice(start, start + step)
            inside = rewards[part, members]
            inside = inside - inside[:, :, :1]  # the mean of equal rewards is now exact
            inside -= inside.mean(dim=2, keepdim=True)
            if epsilon is not None:
                std = (inside.square().sum(dim=2, keepdim=True) / (members.shape[1] - 1)).sqrt()
                inside /= (std + epsilon[part, None, None]).clamp_(min=1e-200)
            inside *= share[members]
            result[part].index_add_(1, flat, inside.flatten(start_dim=1))
    return result


def design_size(group_size: int, scale: int, subgroups: int) -> int:
    """How many subgroups are taken: K, or more to cover everybody, or all if there are fewer.

    The design is exactly balanced, and the advantages of a group sum to zero, where the size is a
    multiple of G / gcd(G, tau) or all are taken. Elsewhere some responses are in one subgroup more
    than the others.
    """
    return min(math.comb(group_size, scale), max(subgroups, -(-group_size // scale)))


@functools.lru_cache(maxsize=4096)
def subgroup_design(group_size: int, scale: int, subgroups: int, seed: int) -> torch.Tensor:
    """Chooses the subgroups of one scale; the same arguments give the same ones everywhere.

    Args:
        group_size: G.
        scale: tau, 2 <= tau <= G.
        subgroups: K >= 1.
        seed: >= 0.

    Where K' times G is at most 512 (the paper: 8 times 8), no design is closer together than the
    best of 1000 random balanced ones; larger ones are searched more briefly, for some 0.5 s.

    Returns:
        (K', tau) int64 member numbers, K' = `design_size`; ascending in each row, no row twice, the
        numbers of rows that members are in differ by at most 1. Cached: do not change it.
    """
    size = design_size(group_size, scale, subgroups)
    total = math.comb(group_size, scale)
    rng = np.random.default_rng([group_size, scale, size, seed])
    if 2 * size <= total:
        rows = _rows_of(_search(group_size, scale, size, rng))
    else:
        # All subgroups are balanced, so what a balanced design leaves over is balanced; and it is
        # farthest apart on average if the design is.
        left_out = total - size
        dropped = set(_rows_of(_search(group_size, scale, left_out, rng)) if left_out else [])
        every = itertools.combinations(range(group_size), scale)
        rows = [row for row in every if row not in dropped]
    return torch.tensor(sorted(rows), dtype=torch.int64)


def _rows_of(design: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(np.flatnonzero(row).tolist()) for row in design]


def _search(group_size: int, scale: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """The best design (size, G) bool of a local search and of random ones; large: the former."""
    if size == 1:
        return _random_designs(1, group_size, scale, size, rng)[0]
    large = size * group_size > LARGE_DESIGN
    best = _random_designs(1, group_size, scale, size, rng)[0]
    best_key = (scale + 1, 0.0)
    restarts = min(RESTARTS, ALL_EXCHANGES // _most_exchanges(size, group_size))
    for _ in range(1 if large else restarts):
        design, even = _evened_out(_random_designs(1, group_size, scale, size, rng)[0], rng)
        if even:
            return design  # no design is better
        key = _crowding(design[None])[0]
        if key < best_key:
            best, best_key = design, key
    if large:
        return best
    at_once = 2**18 // LARGE_DESIGN
    for start in range(0, RANDOM_DESIGNS, at_once):
        number = min(at_once, RANDOM_DESIGNS - start)
        designs = _random_designs(number, group_size, scale, size, rng)
        for design, key in zip(designs, _crowding(designs), strict=True):
            if key < best_key:
                best, best_key = design, key
    return best


def _random_designs(
    number: int, group_size: int, scale: int, size: int, rng: np.random.Generator
) -> np.ndarray:
    """(number, size, G) bool: each subgroup takes those that are in the fewest so far."""
    designs = np.zeros((number, size, group_size), dtype=bool)
    taken = np.zeros((number, group_size))
    for row in range(size):
        order = np.argsort(taken + rng.random(taken.shape), axis=1)[:, :scale]
        np.put_along_axis(designs[:, row], order, True, axis=1)
        taken += designs[:, row]
    return designs


def _crowding(designs: np.ndarray) -> list[tuple[int, float]]:
    """What to make small, the first number first: largest overlap, then minus the sum of distances.

    Args:
        designs: (number, size, G) bool, size >= 2.
    """
    members = designs.astype(np.float64)
    scale = members[0, 0].sum()
    left, right = np.triu_indices(designs.shape[1], 1)
    overlaps = (members @ members.transpose(0, 2, 1))[:, left, right]
    distances = 1 - overlaps / (2 * scale - overlaps)
    sums = distances.sum(axis=1).round(9)
    return [(int(most), -float(s)) for most, s in zip(overlaps.max(axis=1), sums, strict=True)]


def _most_exchanges(size: int, group_size: int) -> int:
    return min(max(200, 20 * size, group_size), EXCHANGES)


def _evened_out(design: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, bool]:
    """Exchanges members of two subgroups while that makes the overlaps more even.

    Args:
        design: (size, G) bool, size >= 2.

    Returns:
        another design, and whether all its overlaps are within 1 of each other: the optimum.
    """
    size, group_size = design.shape
    scale = int(design[0].sum())
    members = design.astype(np.float64)
    # 16 bits, because finding the largest is what takes the time in large designs
    overlaps = (members @ members.T).astype(np.int16 if scale < 2**15 else np.int64)
    np.fill_diagonal(overlaps, 0)
    most = math.ceil(overlaps.sum(dtype=np.int64) / (size * (size - 1)))
    np.fill_diagonal(overlaps, -1)  # a subgroup with itself is not a pair
    shared = np.arange(scale + 1)
    # Minus the distance, more than the least possible largest overlap punished, and twins shunned.
    cost = shared / (2 * scale - shared) + 10.0 * np.maximum(shared - most, 0) ** 2
    cost[scale] += 1e6
    for _ in range(_most_exchanges(size, group_size)):
        largest_of_row = overlaps.max(axis=1)
        largest = largest_of_row.max()
        # Their sum never changes, so overlaps within 1 of each other are `most` and `most` - 1.
        if largest == most and (most == 0 or np.count_nonzero(overlaps < most - 1) == size):
            return members.astype(bool), True
        # One of a pair that overlaps most, or of any pair where that leads nowhere.
        crowded = np.flatnonzero(largest_of_row == largest)
        s = rng.choice(crowded if largest == scale or rng.random() < 0.5 else size)
        t = (s + rng.integers(1, size)) % size
        leaving = rng.permutation(np.flatnonzero((members[s] > 0) & (members[t] == 0)))[:CANDIDATES]
        coming = rng.permutation(np.flatnonzero((members[t] > 0) & (members[s] == 0)))[:CANDIDATES]
        if not len(leaving):
            continue
        # s gives a to t and gets b: another subgroup with b but not a now shares one member more
        # with s and one fewer with t; one with a but not b the other way round.
        others = np.delete(np.arange(size), [s, t])
        in_s, in_t = overlaps[s, others].astype(np.int64), overlaps[t, others].astype(np.int64)
        now = cost[in_s] + cost[in_t]
        gain_b = cost[np.minimum(in_s + 1, scale)] + cost[np.maximum(in_t - 1, 0)] - now
        gain_a = cost[np.maximum(in_s - 1, 0)] + cost[np.minimum(in_t + 1, scale)] - now
        with_a, with_b = members[np.ix_(others, leaving)], members[np.ix_(others, coming)]
        change = (gain_a @ with_a)[:, None] + (gain_b @ with_b)[None, :]
        change -= (with_a * (gain_a + gain_b)[:, None]).T @ with_b
        a, b = np.unravel_index(change.argmin(), change.shape)
        if change[a, b] > 1e-12:
            continue
        step = (with_b[:, b] - with_a[:, a]).astype(np.int64)
        overlaps[s, others] = overlaps[others, s] = in_s + step
        overlaps[t, others] = overlaps[others, t] = in_t - step
        members[s, leaving[a]] = members[t, coming[b]] = 0.0
        members[s, coming[b]] = members[t, leaving[a]] = 1.0
    return members.astype(bool), False
