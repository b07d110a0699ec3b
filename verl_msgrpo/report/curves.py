"""A metric of a method over steps: the mean over seeds, and how far they lie apart."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from verl_msgrpo.report.runs import Series


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """S steps at which every seed has a value.

    Attributes:
        steps: (S,) int64, ascending.
        mean, low, high: (S,) float64 over seeds; low and high are the smallest and the largest.
    """

    steps: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


def curve(seeds: Sequence[Series]) -> Curve:
    """One curve of one or more seeds."""
    steps = sorted(set.intersection(*(set(series) for series in seeds)))
    values = np.array([[series[step] for step in steps] for series in seeds])
    return Curve(
        steps=np.array(steps, dtype=np.int64),
        mean=values.mean(axis=0),
        low=values.min(axis=0),
        high=values.max(axis=0),
    )
