"""Runs the plan, one run of the quickstart at a time, and keeps each one's CSV. See run.sh."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from collect import SCALE, collect, write_whole
from plan import ALL_METHODS, Run, plan
from results_file import read_results

from verl_msgrpo.errors import UserError
from verl_msgrpo.preflight.settings import quoted

ATTEMPTS = 2
LIMIT_S = 1800  # a run takes a few minutes; one that hangs must not hold up the others
GRACE_S = 60
PAUSE_POLL_S = 2
BASE_LR = 2e-4
HERE = Path(__file__).resolve().parent
# The same for every run. No checkpoints, and of held-out questions only those that may search, at
# the end: before training all methods of a seed are the same model.
OVERRIDES = (
    "trainer.save_freq=-1",
    "trainer.val_before_train=False",
    f"data.custom_cls.path={quoted(str(HERE / 'search_questions.py'))}",
    "data.custom_cls.name=SearchQuestions",
)
NOT_KEPT = ("checkpoints", "index", "port")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--only", default=".", help="regular expression for the runs' names")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--quickstart", type=Path, required=True)
    args = parser.parse_args()
    # SIGINT too: a shell's background job ignores it, and so would all that it starts.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        runs = chosen(args.only)
        args.results.mkdir(parents=True, exist_ok=True)
        return run_all(runs, args.steps, args.out, args.results, args.quickstart)
    except UserError as error:
        print(f"run_plan.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130


def chosen(pattern: str) -> list[Run]:
    """The runs of the plan whose names match.

    Raises:
        UserError: the pattern is not a regular expression.
    """
    try:
        return [run for run in plan() if re.search(pattern, run.name)]
    except re.error as error:
        raise UserError(f"ONLY={pattern}: not a regular expression ({error})") from None


def run_all(runs: list[Run], steps: int, out: Path, results: Path, quickstart: Path) -> int:
    """Returns 1 if runs failed, else 0."""
    left = [run for run in runs if not is_done(run, results, steps)]
    print(f"{len(runs)} runs of {steps} steps, {len(runs) - len(left)} of them done", flush=True)
    failed: list[str] = []
    seconds: list[float] = []
    for number, run in enumerate(left, start=1):
        wait_while_paused(out)
        began = time.monotonic()
        print(f"{time.strftime('%H:%M:%S')} {run.name} ...", flush=True)
        problem = run_with_retry(run, steps, out, results, quickstart)
        seconds.append(time.monotonic() - began)
        if problem:
            failed.append(f"{run.name}: {problem}")
        remaining = (len(left) - number) * sum(seconds) / len(seconds) / 60
        print(
            f"  {problem or 'done'}, {seconds[-1]:.0f} s; {len(left) - number} runs left, "
            f"about {remaining:.0f} minutes",
            flush=True,
        )
    for line in failed:
        print(f"failed: {line}")
    return 1 if failed else 0


def is_done(run: Run, results: Path, steps: int) -> bool:
    """Whether the run's CSV is there.

    Raises:
        UserError: it is there, and is not a CSV of a run with so many steps.
    """
    path = results / f"{run.name}.csv"
    if not path.exists():
        return False
    found = max(step for series in read_results(path).values() for step in series)
    if found != steps:
        raise UserError(f"{path} is of {found} steps, not {steps}: name another folder (RESULTS)")
    return True


def wait_while_paused(out: Path) -> None:
    """Waits as long as there is a file PAUSE."""
    if (out / "PAUSE").exists():
        print(f"paused until {out / 'PAUSE'} is gone", flush=True)
    while (out / "PAUSE").exists():
        time.sleep(PAUSE_POLL_S)


def run_with_retry(run: Run, steps: int, out: Path, results: Path, quickstart: Path) -> str | None:
    """What went wrong, None if nothing did."""
    for _ in range(ATTEMPTS):
        try:
            run_once(run, steps, out, results, quickstart)
        except UserError as error:
            problem = str(error)
        else:
            return None
    return problem


def run_once(run: Run, steps: int, out: Path, results: Path, quickstart: Path) -> None:
    """One run, from its start to its CSV.

    Raises:
        UserError: it cannot start, failed, or did not come to its end.
    """
    overrides = [*OVERRIDES, *run.overrides, *control_overrides(run, results)]
    run_dir = out / "runs" / run.name
    log = out / "logs" / f"{run.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "STEPS": str(steps),
        "ACTOR_LR": str(BASE_LR),  # whatever the caller has set
        "SEED": str(run.seed),
        "ADV_ESTIMATOR": ALL_METHODS[run.method].estimator,
        "RUN_DIR": str(run_dir),
        "DATA_DIR": str(out / f"data-seed{run.seed}"),
    }
    with log.open("ab") as output:
        code = wait_for(
            subprocess.Popen(
                ["bash", str(quickstart), *overrides],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )
    if code:
        raise UserError(f"exit code {code}, see {log}")
    write_whole(results / f"{run.name}.csv", collect(run_dir, steps))
    slim(run_dir, steps)


def control_overrides(run: Run, results: Path) -> list[str]:
    """For the control, its learning rate.

    Raises:
        UserError: the run that it depends on has not ended.
    """
    twin = run.exact_twin
    if twin is None:
        return []
    path = results / f"{twin.name}.csv"
    if not path.exists():
        raise UserError(f"needs the mean c of {twin.name}, which is not there")
    mean_c = float(np.mean(list(read_results(path)[SCALE].values())))
    return [f"actor_rollout_ref.actor.optim.lr={BASE_LR * mean_c:.6g}"]


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Its exit code; ends it, with all that it started, after LIMIT_S and when asked to stop."""
    try:
        return process.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        return 124
    except KeyboardInterrupt:
        _end(process)
        raise


def slim(run_dir: Path, steps: int) -> None:
    """Keeps metrics, settings, log and the last step's trajectories, under a megabyte."""
    for name in NOT_KEPT:
        path = run_dir / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for path in (run_dir / "rollouts").glob("*.jsonl"):
        if path.name != f"{steps}.jsonl":
            path.unlink()


def _end(process: subprocess.Popen[bytes]) -> None:
    # As Ctrl-C does: verl then ends Ray and its workers itself.
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
