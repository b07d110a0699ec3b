"""The formula of MS-GRPO, as a person would write it down. Read this file first.

One prompt has a group of G responses with rewards r_1 .. r_G. GRPO compares a response with its
whole group. MS-GRPO compares it inside every subgroup S of every size (scale) tau and averages:

    A_i(S)   = (r_i - mean(S)) / (std(S) + epsilon)                    subgroup_advantage
    A_i(tau) = mean of A_i(S) over the subgroups S of size tau with i  scale_advantages
    A_i      = sum over tau of w_tau * A_i(tau)                        reference_advantages

The scale tau = G alone is GRPO. From "Multi-Scale Group Relative Policy Optimization for Large
Language Models" (OpenReview submission 4604, 2025). Our choices: the std has ddof = 1, as in verl's
`grpo`, and a subgroup whose rewards are all equal contributes exactly 0.

Nothing here is fast, and training does not use it: the tests and the benchmark compare with it.
Rewards may be numbers of any kind; with fractions.Fraction all but the square root is exact.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from statistics import fmean, mean, stdev
from typing import TypeVar

Reward = TypeVar("Reward", float, Fraction)


def subgroup_advantage(
    reward: Reward, subgroup: Sequence[Reward], epsilon: float = 1e-6, normalize: bool = True
) -> float:
    """A_i(S): how far a reward lies above the mean of its subgroup, in standard deviations.

    Without `normalize` (Dr. GRPO's form) in units of the reward.
    """
    if min(subgroup) == max(subgroup):
        return 0.0
    deviation = reward - mean(subgroup)
    return float(deviation / (stdev(subgroup) + epsilon) if normalize else deviation)


def scale_advantages(
    rewards: Sequence[Reward],
    subgroups: Iterable[Sequence[int]],
    epsilon: float = 1e-6,
    normalize: bool = True,
) -> list[float]:
    """A_i(tau) of every response i, from the members of each subgroup of one size."""
    found: list[list[float]] = [[] for _ in rewards]
    for members in subgroups:
        subgroup = [rewards[i] for i in members]
        for i in members:
            found[i].append(subgroup_advantage(rewards[i], subgroup, epsilon, normalize))
    return [fmean(advantages) for advantages in found]


def reference_advantages(
    rewards: Sequence[Reward],
    scales: Sequence[int] | None = None,
    weights: Sequence[float] | None = None,
    epsilon: float = 1e-6,
    normalize: bool = True,
    subgroups: Sequence[Iterable[Sequence[int]]] | None = None,
) -> list[float]:
    """A_i of every response of one group.

    Args:
        rewards: G finite numbers.
        scales: subgroup sizes from 2 to G; None: all of them.
        weights: w_tau of each scale, normalised to sum to 1; None: uniform.
        epsilon: added to the standard deviation.
        normalize: divide by it.
        subgroups: the members of each subgroup to average over, for each scale, so that every
            response is in one at least ("diverse"); None: all subgroups ("all").
    """
    size = len(rewards)
    scales = range(2, size + 1) if scales is None else scales
    weights = [1.0] * len(scales) if weights is None else weights
    if subgroups is None:
        subgroups = [combinations(range(size), tau) for tau in scales]
    per_scale = [scale_advantages(rewards, chosen, epsilon, normalize) for chosen in subgroups]
    return [
        sum(w * of_scale[i] for w, of_scale in zip(weights, per_scale, strict=True)) / sum(weights)
        for i in range(size)
    ]
