"""Comparisons of methods as a table with paired confidence intervals."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from verl_msgrpo.analysis.comparison import CONTROL, SAME_RATE, Comparison, Outcome
from verl_msgrpo.evaluation.intervals import bootstrap_intervals

Row = dict[str, str | float]
MEASURES = ("final", "area", "stuck")


def summarise(comparisons: Sequence[Comparison]) -> list[Row]:
    """One row per problem and method, and one per method for the mean over all problems ("all").

    Columns: kind, level, method, rate; final, area and stuck (see `scores`) with their 95 %
    intervals _low and _high; against: whom the differences are taken from (GRPO; for MS-GRPO at
    GRPO's rate the control, which leaves the rescaling out); final_diff, area_diff and
    stuck_diff with intervals, paired by run; scale and correction (see `training`).

    Args:
        comparisons: with the same methods and number of runs.
    """
    rows = []
    for comparison in comparisons:
        per_run = {name: _per_run(outcome) for name, outcome in comparison.outcomes.items()}
        for name, outcome in comparison.outcomes.items():
            problem: Row = {"kind": comparison.kind, "level": comparison.level, "method": name}
            numbers: Row = {"scale": outcome.scale, "correction": outcome.correction}
            rows.append({**problem, "rate": outcome.rate, **_means(name, per_run), **numbers})
    outcomes = [comparison.outcomes for comparison in comparisons]
    pooled = {
        name: np.mean([_per_run(each[name]) for each in outcomes], axis=0) for name in outcomes[0]
    }
    for name in pooled:
        numbers = {
            "scale": float(np.mean([each[name].scale for each in outcomes])),
            "correction": float(np.mean([each[name].correction for each in outcomes])),
        }
        problem = {"kind": "all", "level": "", "method": name, "rate": ""}
        rows.append({**problem, **_means(name, pooled), **numbers})
    return rows


def _per_run(outcome: Outcome) -> npt.NDArray[np.float64]:
    """(runs, 3) float64: the measures of each run."""
    return np.stack([getattr(outcome.scores, name)[0].numpy() for name in MEASURES], axis=1)


def _means(name: str, per_run: dict[str, npt.NDArray[np.float64]]) -> Row:
    against = CONTROL if name.endswith(SAME_RATE) else "GRPO"
    own = per_run[name]
    result = _with_intervals(own, "")
    return {**result, "against": against, **_with_intervals(own - per_run[against], "_diff")}


def _with_intervals(values: npt.NDArray[np.float64], suffix: str) -> Row:
    result: Row = {}
    low, high = bootstrap_intervals(values)
    for column, measure in enumerate(MEASURES):
        result[measure + suffix] = float(values[:, column].mean())
        result[f"{measure}{suffix}_low"] = float(low[column])
        result[f"{measure}{suffix}_high"] = float(high[column])
    return result
