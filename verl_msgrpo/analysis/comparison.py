"""One problem, all methods: each at its own best learning rate, and all at the same one."""

from typing import NamedTuple

import numpy as np
import torch

from verl_msgrpo.analysis.bandits import Bandits, make_bandits
from verl_msgrpo.analysis.methods import methods
from verl_msgrpo.analysis.rates import best_rate, rate_unit
from verl_msgrpo.analysis.scores import Scores, scores_of
from verl_msgrpo.analysis.training import train
from verl_msgrpo.estimator.config import MSGRPOConfig

SAME_RATE = " at GRPO's rate"
CONTROL = "GRPO at c times its rate"
_GRID = tuple(2 ** (n / 2) for n in range(-2, 11))


class StudySettings(NamedTuple):
    """How a comparison is made.

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


class Outcome(NamedTuple):
    """Of one method at one learning rate, on the bandits for the report.

    rate: the learning rate.
    scores: (1, report_runs) each; run n of every outcome has the same bandit and random numbers.
    scale, correction: see `Training`.
    """

    rate: float
    scores: Scores
    scale: float
    correction: float


class Comparison(NamedTuple):
    """Of all methods on one problem.

    kind, level: see `bandits`.
    curves: method -> (2, L) float64: rates, and the mean final score of each on the bandits for the
        choice.
    at_edge: methods whose best rate is an end of the grid, so that a better one may lie beyond.
    outcomes: each method at its own best rate, by its name; the MS-GRPO ones and the exact one's
        control also at GRPO's.
    """

    kind: str
    level: float
    curves: dict[str, torch.Tensor]
    at_edge: list[str]
    outcomes: dict[str, Outcome]


def compare_methods(kind: str, level: float, settings: StudySettings) -> Comparison:
    """Chooses the learning rates on some bandits, then compares on others.

    Each method gets the rate with the best final score. For those who only change the name of the
    estimator, MS-GRPO also runs at GRPO's best rate; and, to tell its rescaling from the rest, GRPO
    does at that rate times the mean c of MS-GRPO there (the control).
    """
    size = settings.group_size
    choice_seed, report_seed = 2 * settings.seed, 2 * settings.seed + 1
    choice = _bandits(kind, level, settings.choice_runs, choice_seed)
    report = _bandits(kind, level, settings.report_runs, report_seed)

    def outcome(config: MSGRPOConfig, rate: float) -> Outcome:
        training = train(report, config, torch.tensor([rate]), settings.steps, size, report_seed)
        scores = scores_of(training.values, report)
        return Outcome(rate, scores, training.scale, training.correction)

    grid = torch.tensor(settings.grid, dtype=torch.float64)
    curves: dict[str, torch.Tensor] = {}
    outcomes: dict[str, Outcome] = {}
    at_edge = []
    for name, config in methods(size).items():
        rates = grid * rate_unit(choice, config, size, choice_seed)
        training = train(choice, config, rates, settings.steps, size, choice_seed)
        means = scores_of(training.values, choice).final.mean(dim=1)
        curves[name] = torch.stack([rates, means])
        best = best_rate(rates, means)
        if not rates[0] < best < rates[-1]:
            at_edge.append(name)
        outcomes[name] = outcome(config, best)

    grpo, exact, paper = (methods(size)[n] for n in ("GRPO", "MS-GRPO exact", "MS-GRPO paper"))
    rate = outcomes["GRPO"].rate
    there = train(choice, exact, torch.tensor([rate]), settings.steps, size, choice_seed)
    outcomes["MS-GRPO exact" + SAME_RATE] = outcome(exact, rate)
    outcomes["MS-GRPO paper" + SAME_RATE] = outcome(paper, rate)
    outcomes[CONTROL] = outcome(grpo, rate * there.scale)
    return Comparison(kind, level, curves, at_edge, outcomes)


def _bandits(kind: str, level: float, runs: int, seed: int) -> Bandits:
    # Not the seed of the training alone: its random numbers are to have nothing to do with these.
    return make_bandits(kind, level, runs, np.random.default_rng([seed, 1]))
