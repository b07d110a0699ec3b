"""Seconds a step that each phase of training takes."""

from collections.abc import Sequence

from verl_msgrpo.report.methods import Method
from verl_msgrpo.report.panels import PHASE, STEP_SECONDS
from verl_msgrpo.report.runs import Run

OTHER = "other"
OUTSIDE_OF_STEP = ("testing",)
MAX_PHASES = 12


def phase_seconds(method: Method) -> dict[str, float]:
    """Mean seconds per training step of each phase, over steps and runs, the largest first.

    verl times its phases within `timing_s/step`, and validation (`testing`) apart from it; what
    of a step no phase accounts for, and the smallest phases beyond 12, is `other`. Empty where no
    run has timings.
    """
    runs = [run for run in method.runs if STEP_SECONDS in run.metrics]
    if not runs:
        return {}
    names = {metric for run in runs for metric in run.metrics if _is_phase(metric)}
    means = {
        metric.removeprefix(PHASE): sum(_per_step(run, metric) for run in runs) / len(runs)
        for metric in names
    }
    ordered = sorted(means, key=lambda name: (-means[name], name))
    shown = {name: means[name] for name in ordered[:MAX_PHASES]}
    whole = sum(_per_step(run, STEP_SECONDS) for run in runs) / len(runs)
    within = sum(value for name, value in shown.items() if name not in OUTSIDE_OF_STEP)
    return {**shown, OTHER: max(whole - within, 0.0)}


def phase_names(methods: Sequence[dict[str, float]]) -> list[str]:
    """The phases of all methods, in the order of the first one that has them."""
    return list(dict.fromkeys(name for phases in methods for name in phases))


def _is_phase(metric: str) -> bool:
    """Parts of phases have a slash in their names."""
    return metric.startswith(PHASE) and metric != STEP_SECONDS and "/" not in metric[len(PHASE) :]


def _per_step(run: Run, metric: str) -> float:
    return sum(run.metrics.get(metric, {}).values()) / len(run.metrics[STEP_SECONDS])
