"""The definition of MS-GRPO, written down once more in exact arithmetic: for tests only."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import isqrt

_DIGITS = 10**60


def _square_root(x: Fraction) -> Fraction:
    """To about 60 significant digits, also of tiny numbers."""
    shift = 0
    while x and x * 4**shift < 1:
        shift += 64
    scaled = x * 4**shift
    root = isqrt(scaled.numerator * _DIGITS**2 // scaled.denominator)
    return Fraction(root, _DIGITS * 2**shift)


def advantages(
    rewards: Sequence[float],
    scales: Sequence[int] | None = None,
    weights: Sequence[float] | None = None,
    epsilon: float = 1e-6,
    normalize: bool = True,
    subgroups: Sequence[Sequence[Sequence[int]]] | None = None,
) -> list[float]:
    """Averages over `subgroups` (one list per scale), by default all of each scale."""
    r = [Fraction(reward) for reward in rewards]
    size = len(r)
    scales = list(range(2, size + 1)) if scales is None else list(scales)
    w = [Fraction(1)] * len(scales) if weights is None else [Fraction(x) for x in weights]
    result = [Fraction(0)] * size
    for n, (tau, weight) in enumerate(zip(scales, w, strict=True)):
        chosen = combinations(range(size), tau) if subgroups is None else subgroups[n]
        totals, numbers = [Fraction(0)] * size, [0] * size
        for members in chosen:
            mean = sum(r[i] for i in members) / tau
            variance = sum((r[i] - mean) ** 2 for i in members) / (tau - 1)
            divisor = _square_root(variance) + Fraction(epsilon) if normalize else Fraction(1)
            for i in members:
                numbers[i] += 1
                totals[i] += (r[i] - mean) / divisor if variance else 0
        for i in range(size):
            result[i] += weight / sum(w) * totals[i] / numbers[i]
    return [float(x) for x in result]
