"""Confidence intervals of means: over prompts, which are many, and over seeds, which are few.

Over prompts the bootstrap assumes nothing about the values. Of five seeds, say, its percentiles are
far too narrow; Student's interval is exact there if the values are normal.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from verl_msgrpo.errors import UserError

LEVEL = 0.95
CELLS_AT_ONCE = 2**22  # of the (resamples, P) weights: 32 MiB


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean over `count` values with its 95 % interval; low and high are NaN below two values."""

    value: float
    low: float
    high: float
    count: int


def bootstrap_intervals(
    values: npt.NDArray[np.float64], *, resamples: int = 2000, level: float = LEVEL, seed: int = 0
) -> npt.NDArray[np.float64]:
    """Percentile bootstrap: prompts are drawn with replacement, all columns from the same draw.

    Prompts are the unit, because the samples of one prompt are not independent. The interval has
    no width where all prompts have the same value, and is somewhat narrow below some 30 prompts.

    Args:
        values: (P, Q) float64, Q quantities of each prompt; NaN leaves a prompt out of a column.
        resamples: draws of P prompts.
        level: share of the resampled means inside the interval.
        seed: of the draws.

    Returns:
        (2, Q) float64, low and high; NaN for a column with fewer than two prompts.

    Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13.
    """
    prompts, quantities = values.shape
    counted = ~np.isnan(values)
    # Measured from one of its values, a column of equal ones has means without rounding noise.
    origin = np.min(values, axis=0, initial=np.inf, where=counted)
    filled = np.where(counted, values - origin, 0.0)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, quantities))
    step = max(1, CELLS_AT_ONCE // max(prompts, 1))
    for start in range(0, resamples, step):
        number = min(step, resamples - start)
        drawn = rng.integers(prompts, size=(number, prompts))
        drawn += np.arange(number)[:, None] * prompts
        times = np.bincount(drawn.ravel(), minlength=number * prompts).reshape(number, prompts)
        with np.errstate(invalid="ignore"):  # a draw without any prompt of a column
            means[start : start + number] = (times @ filled) / (times @ counted.astype(float))
    result = np.full((2, quantities), np.nan)
    enough = counted.sum(axis=0) >= 2
    tail = (1 - level) / 2
    quantiles = np.nanquantile(means[:, enough], [tail, 1 - tail], axis=0)
    result[:, enough] = origin[enough] + quantiles
    return result


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """The mean of one or more values with Student's interval.

    Source: Student 1908, "The probable error of a mean", Biometrika 6.

    Raises:
        UserError: scipy is missing, and there are several values.
    """
    mean = float(np.mean(values))
    count = len(values)
    if count < 2:
        return Mean(mean, math.nan, math.nan, count)
    try:
        from scipy.stats import t
    except ImportError:
        raise UserError("needs scipy: pip install 'verl-msgrpo[report]'") from None
    half = float(t.ppf((1 + LEVEL) / 2, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Mean(mean, mean - half, mean + half, count)


def paired_difference(first: Mapping[str, float], second: Mapping[str, float]) -> Mean | None:
    """The mean of `second - first` over the seeds that both have; None if there is none."""
    common = [seed for seed in first if seed in second]
    if not common:
        return None
    return mean_over_seeds([second[seed] - first[seed] for seed in common])
