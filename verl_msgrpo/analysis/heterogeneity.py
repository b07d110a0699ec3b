"""How much the variance of the subgroups of a group varies, and what that does to their std."""

import torch

from verl_msgrpo.analysis.subset_moments import SubsetMoments


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
