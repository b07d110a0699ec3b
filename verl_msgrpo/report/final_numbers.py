"""Where the runs ended: each method's mean over seeds, and its difference from the first one's."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from verl_msgrpo.evaluation.intervals import Mean, mean_over_seeds, paired_difference
from verl_msgrpo.report.curves import VALIDATION, Panel, final_metrics
from verl_msgrpo.report.methods import Method
from verl_msgrpo.report.runs import Series

LAST_STEPS = 10


@dataclasses.dataclass(frozen=True)
class FinalNumber:
    """One metric.

    means: of each method; None where no run of it has the metric.
    differences: of each method from the first one, over common seeds; None for the first, and
        where there is no such seed.
    """

    panel: Panel
    means: list[Mean | None]
    differences: list[Mean | None]


def final_numbers(methods: Sequence[Method], panels: Sequence[Panel]) -> list[FinalNumber]:
    """A row for each metric with a final number."""
    return [_final_number(methods, panel) for panel in final_metrics(panels)]


def final_value(metric: str, series: Series) -> float:
    """The last value of a validation; the mean of the last 10 steps that have one else."""
    values = list(series.values())
    return values[-1] if metric.startswith(VALIDATION) else float(np.mean(values[-LAST_STEPS:]))


def _final_number(methods: Sequence[Method], panel: Panel) -> FinalNumber:
    metric = panel.metric
    ends = [
        [final_value(metric, run.metrics[metric]) for run in method.runs if metric in run.metrics]
        for method in methods
    ]
    by_seed = [
        {
            seed: final_value(metric, run.metrics[metric])
            for seed, run in method.by_seed().items()
            if metric in run.metrics
        }
        for method in methods
    ]
    return FinalNumber(
        panel=panel,
        means=[mean_over_seeds(values) if values else None for values in ends],
        differences=[None, *(paired_difference(by_seed[0], other) for other in by_seed[1:])],
    )
