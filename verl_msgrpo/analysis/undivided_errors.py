"""Bias and error of the advantages without the std division, in closed form."""

from verl_msgrpo.analysis.rescaling import undivided_rescaling
from verl_msgrpo.estimator.scales import WeightedScales


def undivided_bias(group_size: int, scales: WeightedScales) -> float:
    """b of the bias E[A_i | r_i] - (r_i - E r) = b (r_i - E r), for i.i.d. rewards.

    A is f (r_i - mean), and the mean holds r_i itself, so b = f (G - 1) / G - 1: never positive,
    and -1 / G for Dr. GRPO (the scale G alone). The advantage only shrinks.
    """
    return undivided_rescaling(group_size, scales) * (group_size - 1) / group_size - 1


def undivided_mse(variance: float, group_size: int, scales: WeightedScales) -> float:
    """E[(A_i - (r_i - E r))^2] for i.i.d. rewards: s^2 / G + (1 - f)^2 s^2 (G - 1) / G.

    The error is (f - 1) (r_i - mean) + (mean - E r); both parts are uncorrelated.
    """
    f = undivided_rescaling(group_size, scales)
    return variance / group_size * (1 + (1 - f) ** 2 * (group_size - 1))
