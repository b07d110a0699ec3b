"""One problem, all methods: each at its own best learning rate, and all at the same one.

`compare_methods` makes the runs of one problem, `summarise` a table of several, with paired
intervals.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from verl_msgrpo.analysis.bandits import Bandits, Scores, make_bandits, scores_of
from verl_msgrpo.analysis.training import best_rate, methods, rate_unit, train
from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.evaluation.intervals import bootstrap_intervals

SAME_RATE = " at GRPO's rate"
CONTROL = "GRPO at c times its rate"
Row = dict[str, str | float]
MEASURES = ("final", "area", "stuck")
_GRID = tuple(2 ** (n / 2) for n in range(-2, 11))


class StudySettings(NamedTuple):
    """How a study is made.

    grid: learning rates, ascending, in units of `rate_unit`.
    steps: gradient steps per run.
    group_size: G.
    choice_runs: bandits on which the rates are chosen.
    report_runs: further bandits, on which the methods are compared.
    seed: >= 0.
    """

    grid: tuple[float, ...] = _GRID
    steps: int = 50
    group_size: int = 8
    choice_runs: int = 128
    report_runs: int = 512
    seed: int = 0


class MethodResult(NamedTuple):
    """Of one method at one learning rate, on the bandits for the report.

    rate: the learning rate.
    scores: (1, report_runs) each; run n of every result has the same bandit and random numbers.
    scale, correction: see `Training`.
    """

    rate: float
    scores: Scores
    scale: float
    correction: float


class Study(NamedTuple):
    """Of all methods on one problem.

    kind, level: see `bandits`.
    curves: method -> (2, L) float64: rates, and the mean final score of each on the bandits for the
        choice.
    at_edge: methods whose best rate is an end of the grid, so that a better one may lie beyond.
    results: each method at its own best rate, by its name; the MS-GRPO ones and the exact one's
        control also at GRPO's.
    """

    kind: str
    level: float
    curves: dict[str, torch.Tensor]
    at_edge: list[str]
    results: dict[str, MethodResult]


def compare_methods(kind: str, level: float, settings: StudySettings) -> Study:
    """Chooses the learning rates on some bandits, then compares on others.

    Each method gets the rate with the best final score. For those who only change the name of the
    estimator, MS-GRPO also runs at GRPO's best rate; and, to tell its rescaling from the rest, GRPO
    does at that rate times the mean c of MS-GRPO there (the control).
    """
    size = settings.group_size
    choice_seed, report_seed = 2 * settings.seed, 2 * settings.seed + 1
    choice = _bandits(kind, level, settings.choice_runs, choice_seed)
    report = _bandits(kind, level, settings.report_runs, report_seed)

    def reported(config: MSGRPOConfig, rate: float) -> MethodResult:
        training = train(report, config, torch.tensor([rate]), settings.steps, size, report_seed)
        scores = scores_of(training.values, report)
        return MethodResult(rate, scores, training.scale, training.correction)

    grid = torch.tensor(settings.grid, dtype=torch.float64)
    curves: dict[str, torch.Tensor] = {}
    results: dict[str, MethodResult] = {}
    at_edge = []
    for name, config in methods(size).items():
        rates = grid * rate_unit(choice, config, size, choice_seed)
        training = train(choice, config, rates, settings.steps, size, choice_seed)
        means = scores_of(training.values, choice).final.mean(dim=1)
        curves[name] = torch.stack([rates, means])
        best = best_rate(rates, means)
        if not rates[0] < best < rates[-1]:
            at_edge.append(name)
        results[name] = reported(config, best)

    grpo, exact, paper = (methods(size)[n] for n in ("GRPO", "MS-GRPO exact", "MS-GRPO paper"))
    rate = results["GRPO"].rate
    there = train(choice, exact, torch.tensor([rate]), settings.steps, size, choice_seed)
    results["MS-GRPO exact" + SAME_RATE] = reported(exact, rate)
    results["MS-GRPO paper" + SAME_RATE] = reported(paper, rate)
    results[CONTROL] = reported(grpo, rate * there.scale)
    return Study(kind, level, curves, at_edge, results)


def summarise(studies: Sequence[Study]) -> list[Row]:
    """One row per problem and method, and one per method for the mean over all problems ("all").

    Columns: kind, level, method, rate; final, area and stuck (see `Scores`) with their 95 %
    intervals _low and _high; against: whom the differences are taken from (GRPO; for MS-GRPO at
    GRPO's rate the control, which leaves the rescaling out); final_diff, area_diff and
    stuck_diff with intervals, paired by run; scale and correction (see `Training`).

    Args:
        studies: with the same methods and number of runs.
    """
    rows = []
    for study in studies:
        per_run = {name: _per_run(result) for name, result in study.results.items()}
        for name, result in study.results.items():
            problem: Row = {"kind": study.kind, "level": study.level, "method": name}
            numbers: Row = {"scale": result.scale, "correction": result.correction}
            rows.append({**problem, "rate": result.rate, **_means(name, per_run), **numbers})
    results = [study.results for study in studies]
    pooled = {
        name: np.mean([_per_run(each[name]) for each in results], axis=0) for name in results[0]
    }
    for name in pooled:
        numbers = {
            "scale": float(np.mean([each[name].scale for each in results])),
            "correction": float(np.mean([each[name].correction for each in results])),
        }
        problem = {"kind": "all", "level": "", "method": name, "rate": ""}
        rows.append({**problem, **_means(name, pooled), **numbers})
    return rows


def _bandits(kind: str, level: float, runs: int, seed: int) -> Bandits:
    # Not the seed of the training alone: its random numbers are to have nothing to do with these.
    return make_bandits(kind, level, runs, np.random.default_rng([seed, 1]))


def _per_run(result: MethodResult) -> npt.NDArray[np.float64]:
    """(runs, 3) float64: the measures of each run."""
    return np.stack([getattr(result.scores, name)[0].numpy() for name in MEASURES], axis=1)


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
