"""MS-GRPO's advantage expanded around the group's standard deviation, and what decides its error.

Our derivation; the paper's appendix stops at an approximation. Let the rewards of a group be
shifted and scaled so that their mean is 0 and their std s is 1, and let S be a random subgroup of
size tau that contains i. Its variance is s_S^2 = 1 + d_S, and

    A_i(tau) = E[(x_i - mean_S) (1 + d_S)^(-1/2)]
             = E[x_i - mean_S] - 1/2 E[(x_i - mean_S) d_S] + 3/8 E[(x_i - mean_S) d_S^2] - ..

Term 0 is (tau - 1) / tau * G / (G - 1) times GRPO's advantage: with it alone MS-GRPO is f times
GRPO. Term 1 does not vanish: the mean of d_S is 0 over all S, but not over those that contain i,
nor is d_S independent of mean_S. Terms 1 and up are the correction.

With P_1, P_2 the sums of x and x^2 over the other tau - 1 members,

    x_i - mean_S = ((tau - 1) x_i - P_1) / tau
    s_S^2        = (x_i^2 + P_2 - (x_i + P_1)^2 / tau) / (tau - 1)

so that every term is the mean of a polynomial in P_1 and P_2, which `SubsetMoments` knows exactly
from the power sums of the other G - 1 members: any G, in polynomial time. Subgroups of equal
rewards contribute 0 to every term, as they do to A.

The series converges only if no subgroup has more than twice the group's variance, and at small
scales some always do: see the figures in examples/analysis for what the terms are worth. How much
the variances of the subgroups vary is V (`heterogeneity`).
"""

import functools
import math
from collections import Counter
from collections.abc import Iterator

import torch

from verl_msgrpo.estimator.scales import WeightedScales

Polynomial = dict[tuple[int, int], torch.Tensor]
"""Coefficients by the powers of P_1 and P_2."""


def taylor_advantages(rewards: torch.Tensor, scales: WeightedScales, order: int) -> torch.Tensor:
    """Approximates MS-GRPO's advantages, over all subgroups and divided by the std.

    Args:
        rewards: (n, G) real, finite, G >= 2.
        scales: pairs (tau, weight), 2 <= tau <= G, see `weighted_scales`.
        order: highest power of d_S, 0 .. 4.

    Returns:
        (n, G) float64; 0 for groups whose rewards are all equal. epsilon is 0.
    """
    if not 0 <= order <= 4:
        raise ValueError(f"order: allowed is 0 to 4, got {order}")
    x = standardized(rewards)
    powers = torch.stack([x.pow(e) for e in range(2 * order + 2)])
    moments = SubsetMoments(powers.sum(dim=2, keepdim=True) - powers, x.shape[1] - 1)
    result = torch.zeros_like(x)
    for scale, weight in scales:
        result += weight * _at_scale(x, moments, scale, order)
    return result


def heterogeneity(rewards: torch.Tensor, scale: int) -> torch.Tensor:
    """V: relative variance of the subgroup variances, Var(s_S^2) / s^4 over all S of one size.

    s^2 is the variance of the group (ddof = 1), which is also the mean of s_S^2. V has no unit, is
    0 for the whole group, and does not go to 0 as rewards come closer together: it depends on
    their pattern and on the scale. In large groups it is (kurtosis - (tau - 3) / (tau - 1)) / tau:
    at tau = 2 never below 1.

    Args:
        rewards: (n, G) real, finite.
        scale: tau, 2 <= tau <= G.

    Returns:
        (n,) float64; 0 for groups whose rewards are all equal.
    """
    x = standardized(rewards)
    size = x.shape[1]
    moments = SubsetMoments(torch.stack([x.pow(e).sum(dim=1) for e in range(5)]), size)
    fourth = moments.mean(scale, 0, 2) - 2 / scale * moments.mean(scale, 2, 1)
    fourth = fourth + moments.mean(scale, 4, 0) / scale**2  # of (P_2 - P_1^2 / tau)^2
    result = fourth / (scale - 1) ** 2 - 1
    return torch.where(x.any(dim=1), result.clamp(min=0), 0.0)


def inverse_std_second_order(rewards: torch.Tensor, scale: int) -> torch.Tensor:
    """Mean of s / s_S over the subgroups of one size, to second order: 1 + 3/8 V.

    With s_S^2 = s^2 (1 + d), the mean of d is 0 and that of d^2 is V, and
    (1 + d)^(-1/2) = 1 - d/2 + 3/8 d^2 - .. (our derivation).

    Returns:
        (n,) float64.
    """
    return 1 + 0.375 * heterogeneity(rewards, scale)


def standardized(rewards: torch.Tensor) -> torch.Tensor:
    """(n, G) float64 with mean 0 and std 1 (ddof = 1) in each row; 0 where all are equal."""
    deviations = rewards.double() - rewards[:, :1].double()
    deviations = deviations - deviations.mean(dim=1, keepdim=True)
    std = deviations.std(dim=1, keepdim=True)
    return torch.where(std > 0, deviations / std, 0.0)


class SubsetMoments:
    """Expectations over the random subsets of fixed size of N members, for many sets at once.

    No subset is enumerated: with S a random subset of n of N members and P_e = sum over S of x^e, a
    product of such sums is a sum over tuples of members. Tuples are sorted by which of their
    entries coincide, that is by the set partitions of the factors; b distinct members are all in S
    with probability n (n-1) .. (n-b+1) / (N (N-1) .. (N-b+1)), and the sum over b distinct members
    follows from the power sums by inclusion and exclusion.

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


def _at_scale(x: torch.Tensor, moments: SubsetMoments, scale: int, order: int) -> torch.Tensor:
    one = torch.ones_like(x)
    within = 1 / (scale * (scale - 1))
    excess: Polynomial = {
        (0, 0): x.square() / scale - 1,
        (1, 0): -2 * within * x,
        (2, 0): -within * one,
        (0, 1): one / (scale - 1),
    }
    term: Polynomial = {(0, 0): (scale - 1) / scale * x, (1, 0): -one / scale}
    result = _mean(term, moments, scale - 1)
    coefficient = 1.0
    for power in range(1, order + 1):
        term = _product(term, excess)
        coefficient *= (0.5 - power) / power  # binomial coefficients of the power -1/2
        result = result + coefficient * _mean(term, moments, scale - 1)
    return result


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for (a, b), first in left.items():
        for (c, d), second in right.items():
            added = first * second
            known = result.get((a + c, b + d))
            result[a + c, b + d] = added if known is None else known + added
    return result


def _mean(polynomial: Polynomial, moments: SubsetMoments, size: int) -> torch.Tensor:
    parts = [
        coefficient * moments.mean(size, sums, square_sums)
        for (sums, square_sums), coefficient in polynomial.items()
    ]
    return torch.stack(parts).sum(dim=0)


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
