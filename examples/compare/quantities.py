"""What one run amounts to, and a method against another over seeds."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from collect import ACCURACY, HELD_OUT
from plan import Run

from verl_msgrpo.evaluation.intervals import Mean, mean_over_seeds, paired_difference
from verl_msgrpo.report.runs import Series

TARGET, SMOOTHED_STEPS, LAST_STEPS = 0.7, 3, 5

Columns = dict[str, Series]  # of one run, as its CSV has them
Results = Mapping[Run, Columns]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number for each run; `decimals` of it are shown."""

    name: str
    decimals: int


FINAL = Quantity("held-out accuracy at the end", 3)
LATE = Quantity(f"training accuracy, last {LAST_STEPS} steps", 3)
MEAN = Quantity("training accuracy, all steps", 3)
REACHED = Quantity(f"steps to {TARGET}", 1)
QUANTITIES = (FINAL, LATE, MEAN, REACHED)


def quantities(columns: Columns) -> dict[Quantity, float]:
    """The four numbers of a run."""
    accuracy = columns[ACCURACY]
    values = list(accuracy.values())
    return {
        FINAL: columns[HELD_OUT][max(columns[HELD_OUT])],
        LATE: float(np.mean(values[-LAST_STEPS:])),
        MEAN: float(np.mean(values)),
        REACHED: float(steps_to_target(accuracy)),
    }


def smoothed(series: Series) -> Series:
    """Means over each step and the two before; none for the first two steps."""
    steps, values = list(series), list(series.values())
    return {
        steps[end - 1]: float(np.mean(values[end - SMOOTHED_STEPS : end]))
        for end in range(SMOOTHED_STEPS, len(steps) + 1)
    }


def steps_to_target(accuracy: Series) -> int:
    """The first step whose smoothed accuracy is 0.7 or more; one step after the last if none is."""
    reached = [step for step, value in smoothed(accuracy).items() if value >= TARGET]
    return min(reached, default=max(accuracy) + 1)


def mean_of(columns: Columns, name: str) -> float:
    """Mean of a column over the steps that have it; NaN where none has."""
    series = columns.get(name)
    return float(np.mean(list(series.values()))) if series else math.nan


def by_seed(results: Results, reward: str, method: str, quantity: Quantity) -> dict[str, float]:
    """A method's quantity for each of its seeds."""
    return {
        str(run.seed): quantities(columns)[quantity]
        for run, columns in sorted(results.items(), key=lambda item: item[0].seed)
        if (run.reward, run.method) == (reward, method)
    }


def difference(
    results: Results, reward: str, method: str, other: str, quantity: Quantity
) -> Mean | None:
    """`method - other`, paired by seed, with Student's 95 % interval; None without a common seed.

    The bootstrap's percentiles would be far too narrow with five pairs.
    """
    return paired_difference(
        by_seed(results, reward, other, quantity), by_seed(results, reward, method, quantity)
    )


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """Over seeds; the standard deviation (n - 1) of a single value is NaN."""
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return mean_over_seeds(values).value, sd
