"""Which rewards of a group count as equal, and the unit to compute with."""

import numpy as np
import torch

ULPS = 8  # rewards that are equal but for the rounding of their sums differ by a few units


def times_power_of_two(numbers: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """numbers * 2**exponent, exact (torch.ldexp goes through float32), float64 on the CPU."""
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.ldexp(numbers.numpy(), exponent.numpy()))


def unit_magnitude(rewards: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales each group by a power of two so that its largest |reward| lies in [0.5, 1).

    Args:
        rewards: (P, G) float64, finite, G >= 1.

    Returns:
        scaled (P, G) float64 and exponent (P, 1) int32, with rewards = scaled * 2**exponent.
    """
    exponent = torch.frexp(rewards.abs().amax(dim=1, keepdim=True)).exponent
    return times_power_of_two(rewards, -exponent), exponent


def has_variance(scaled: torch.Tensor, exponent: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Tells which groups have anything to compare.

    Args:
        scaled, exponent: (P, G) and (P, 1), as `unit_magnitude` gives them.
        dtype: floating dtype in which the rewards came.

    Returns:
        (P,) bool: False where the range of the group is at most 8 ulp of its largest |reward|.
    """
    info = torch.finfo(dtype)
    # eps is the ulp of [1, 2); that of subnormal numbers is constant.
    subnormal = torch.tensor(info.tiny * info.eps, dtype=torch.float64)
    ulp = times_power_of_two(subnormal, -exponent)[:, 0].clamp(min=info.eps / 2)
    lowest, highest = scaled.aminmax(dim=1)
    return highest - lowest > ULPS * ulp


def merge_ties(scaled: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Makes rewards that differ by rounding noise only exactly equal.

    Inside a group, a subgroup of nearly equal rewards would otherwise divide noise by its own tiny
    standard deviation. A reward becomes the lowest of those within 8 ulp below it (our choice; of
    float32 if `dtype` is coarser, because its neighbouring floats are levels and not noise).
    Rewards that differ by less than 2**-400 of the largest are merged too: their square underflows.

    Args:
        scaled: (P, G) float64, the largest |reward| of each row in [0.5, 1).
        dtype: floating dtype in which the rewards came.

    Returns:
        (P, G) float64.
    """
    eps = min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    ascending, order = scaled.sort(dim=1)
    magnitude = torch.maximum(ascending[:, :-1].abs(), ascending[:, 1:].abs())
    ulp = torch.from_numpy(np.spacing(magnitude.numpy())) * (eps / torch.finfo(torch.float64).eps)
    noise = (ULPS * ulp).clamp(min=2.0**-400)
    steps = ascending.diff(dim=1)
    if not ((steps > 0) & (steps <= noise)).any():
        return scaled
    anchors = [ascending[:, 0]]
    for j in range(1, scaled.shape[1]):
        close = ascending[:, j] - anchors[-1] <= noise[:, j - 1]
        anchors.append(torch.where(close, anchors[-1], ascending[:, j]))
    return torch.empty_like(scaled).scatter_(1, order, torch.stack(anchors, dim=1))


def unit_range(scaled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales each group by a power of two so that its range lies in [0.5, 1).

    Args:
        scaled: (P, G) float64, every row with a range above 0.

    Returns:
        (P, G) float64 and exponent (P, 1) int32, with scaled = result * 2**exponent.
    """
    lowest, highest = scaled.aminmax(dim=1, keepdim=True)
    exponent = torch.frexp(highest - lowest).exponent
    return times_power_of_two(scaled, -exponent), exponent
