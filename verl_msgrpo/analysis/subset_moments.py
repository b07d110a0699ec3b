"""Moments of the sums over a random subset, from the power sums of all members.

No subset is enumerated: with S a random subset of n of N members and P_e = sum over S of x^e, a
product of such sums is a sum over tuples of members. Tuples are sorted by which of their entries
coincide, that is by the set partitions of the factors; b distinct members are all in S with
probability n (n-1) .. (n-b+1) / (N (N-1) .. (N-b+1)), and the sum over b distinct members follows
from the power sums by inclusion and exclusion.
"""

import functools
import math
from collections import Counter
from collections.abc import Iterator

import torch


class SubsetMoments:
    """Expectations over the random subsets of fixed size of N members, for many sets at once.

    Args:
        power_sums: (D + 1, ...) float64: sum over the members of x^e, e = 0 .. D.
        members: N.
    """

    def __init__(self, power_sums: torch.Tensor, members: int) -> None:
        self._power_sums = power_sums
        self._members = members
        self._cache: dict[tuple[int, ...], torch.Tensor] = {}

    def mean(self, size: int, sums: int, square_sums: int) -> torch.Tensor:
        """E[P_1^sums P_2^square_sums] over the subsets of `size` members.

        Args:
            size: n <= N.
            sums, square_sums: powers >= 0, sums + 2 square_sums <= D.

        Returns:
            (...) float64.
        """
        total = torch.zeros_like(self._power_sums[0])
        for exponents, ways in _block_exponents(sums, square_sums).items():
            blocks = len(exponents)
            if blocks <= size:
                chance = math.perm(size, blocks) / math.perm(self._members, blocks)
                total = total + ways * chance * self._over_distinct(exponents)
        return total

    def _over_distinct(self, exponents: tuple[int, ...]) -> torch.Tensor:
        """Sum over distinct members j_1, j_2, .. of x_{j_1}^{e_1} x_{j_2}^{e_2} .."""
        if not exponents:
            return torch.ones_like(self._power_sums[0])
        if exponents not in self._cache:
            *rest, last = exponents
            total = self._power_sums[last] * self._over_distinct(tuple(rest))
            for place in range(len(rest)):  # the last member is none of the others
                merged = rest.copy()
                merged[place] += last
                total = total - self._over_distinct(tuple(sorted(merged)))
            self._cache[exponents] = total
        return self._cache[exponents]


@functools.cache
def _block_exponents(sums: int, square_sums: int) -> Counter[tuple[int, ...]]:
    """Exponents of the blocks of all set partitions of the factors, and how often they occur."""
    factors = (1,) * sums + (2,) * square_sums
    return Counter(tuple(sorted(blocks)) for blocks in _partitions(factors))


def _partitions(factors: tuple[int, ...]) -> Iterator[list[int]]:
    """The set partitions of the factors, each as the sums of its blocks."""
    if not factors:
        yield []
        return
    for blocks in _partitions(factors[1:]):
        yield [*blocks, factors[0]]
        for place, block in enumerate(blocks):
            yield [*blocks[:place], block + factors[0], *blocks[place + 1 :]]
