"""A finished run of the quickstart as one table, a row for each step."""

import math
import os
import sys
from pathlib import Path

import torch

from verl_msgrpo.errors import UserError
from verl_msgrpo.estimator.metrics import ms_grpo_advantages_and_metrics
from verl_msgrpo.evaluation.table import write_csv
from verl_msgrpo.report.runs import Series, read_run

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "quickstart"))
from run_files import HELD_OUT, REWARD, dump_of, rewards_by_group, training_accuracy

ACCURACY = "train/accuracy"
SCALE, CORRECTION, DISTINCT = "exact/scale", "exact/correction", "exact/distinct_rewards"
# What exact MS-GRPO makes of a step's rewards, whichever method it is that trains.
EXACT = ("exact/homogeneous_share", SCALE, CORRECTION, DISTINCT)
LOGGED = (
    *(HELD_OUT, "val-aux/quickstart/search/searches/mean@1", REWARD),
    *("critic/advantages/max", "critic/advantages/min"),
    *("actor/pg_loss", "actor/grad_norm", "actor/entropy", "actor/ppo_kl", "actor/pg_clipfrac"),
    *("actor/lr", "rollout_corr/kl", "response_length/mean", "search/per_rollout/mean"),
    *(f"ms_grpo/{name}" for name in ("scale", "correction", "sign_flips", "design_noise")),
    *(f"ms_grpo/{name}" for name in ("subgroups", "adv_abs_mean", "grpo_adv_abs_mean")),
    *("timing_s/step", "timing_s/testing"),
)
COLUMNS = ("step", ACCURACY, *EXACT, *LOGGED)


def collect(run_dir: Path, steps: int) -> list[list[float]]:
    """The rows under COLUMNS, for the steps 1 .. `steps`; NaN where a step has no such number.

    Raises:
        UserError: the run has not come to its end.
    """
    logged = read_run(run_dir, LOGGED.__contains__).metrics
    table: dict[str, Series] = {name: logged.get(name, {}) for name in LOGGED}
    for step in range(1, steps + 1):
        dump = dump_of(run_dir, step)
        accuracy = training_accuracy(dump)
        if accuracy is None or step not in table[REWARD]:
            raise UserError(f"{run_dir}: has no step {step} of {steps}")
        for name, value in {ACCURACY: accuracy, **exact_metrics(dump)}.items():
            table.setdefault(name, {})[step] = value
    if steps not in table[HELD_OUT]:
        raise UserError(f"{run_dir}: has no held-out accuracy at step {steps}")
    return [
        [step, *(table.get(name, {}).get(step, math.nan) for name in COLUMNS[1:])]
        for step in range(1, steps + 1)
    ]


def exact_metrics(dump: Path) -> dict[str, float]:
    """The metrics EXACT of one step's rollouts; the first alone where no group has a signal.

    Raises:
        UserError: the file is not a dump of verl's.
    """
    groups = list(rewards_by_group(dump).values())
    numbers = torch.tensor([number for number, group in enumerate(groups) for _ in group])
    rewards = torch.tensor([reward for group in groups for reward in group])
    _, metrics = ms_grpo_advantages_and_metrics(rewards, numbers)
    found = {f"exact/{name}": value for name, value in metrics.items()}
    return {name: found[name] for name in EXACT if name in found}


def write_whole(path: Path, rows: list[list[float]]) -> None:
    """Writes the CSV so that it is there whole or not at all."""
    unfinished = path.with_suffix(".tmp")
    write_csv(unfinished, COLUMNS, rows)
    os.replace(unfinished, path)
