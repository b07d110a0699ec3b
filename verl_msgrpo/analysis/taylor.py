"""MS-GRPO's advantage expanded around the group's standard deviation.

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
scales some always do: see the figures in examples/analysis for what the terms are worth.
"""

import torch

from verl_msgrpo.analysis.heterogeneity import standardized
from verl_msgrpo.analysis.subset_moments import SubsetMoments
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
