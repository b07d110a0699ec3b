"""Student's 95 % intervals over seeds.

Seeds are few (five, say), where the bootstrap's percentiles are far too narrow. Student's interval
is exact for normal values.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from verl_msgrpo.report.extra import from_extra

LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean over `count` values with its interval; NaN below two values."""

    value: float
    low: float
    high: float
    count: int


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """The mean of one or more values. Source: Student 1908, "The probable error of a mean".

    Raises:
        UserError: scipy is missing, and there are several values.
    """
    mean = float(np.mean(values))
    count = len(values)
    if count < 2:
        return Mean(mean, math.nan, math.nan, count)
    t = from_extra("scipy.stats").t
    half = float(t.ppf((1 + LEVEL) / 2, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Mean(mean, mean - half, mean + half, count)


def paired_difference(first: Mapping[str, float], second: Mapping[str, float]) -> Mean | None:
    """The mean of `second - first` over the seeds that both have; None if there is none."""
    common = [seed for seed in first if seed in second]
    if not common:
        return None
    return mean_over_seeds([second[seed] - first[seed] for seed in common])
