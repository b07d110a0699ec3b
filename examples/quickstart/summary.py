"""After training: a table of the held-out questions, a learning curve, and a page about the runs.

    python examples/quickstart/summary.py RUN_DIR

Writes `learning_curve.png` and `report.html` into RUN_DIR. The page is about this run and the
finished runs of the quickstart beside it, so that `grpo` and `ms_grpo` are on one page.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import matplotlib as mpl
from run_files import (
    HELD_OUT,
    HELD_OUT_FROM_MEMORY,
    METRICS,
    REWARD,
    ROLLOUTS,
    SEARCH,
    TURNS,
    rewards_by_group,
    searches,
)

from verl_msgrpo.errors import UserError
from verl_msgrpo.report.runs import Series, read_run

Metrics = Mapping[str, Series]

TABLE = {
    "accuracy with search": HELD_OUT,
    "accuracy without search": HELD_OUT_FROM_MEMORY,
    "searches per question": f"val-aux/{SEARCH}/searches/mean@1",
    "bridge found": f"val-aux/{SEARCH}/found_bridge/mean@1",
}
SHOWN = frozenset({*TABLE.values(), REWARD, TURNS})

MARK = ".quickstart"  # run.sh puts it into each of its runs
CURVE, PAGE = "learning_curve.png", "report.html"
PAGE_LIMIT_S = 600  # it takes seconds


def read_metrics(run_dir: Path) -> Metrics:
    """The metrics that are shown here.

    Raises:
        UserError: the folder has no metrics.
    """
    return read_run(run_dir, SHOWN.__contains__).metrics


def table(metrics: Metrics) -> str:
    """Held-out results at the first and the last validation."""
    lines = [f"{'held-out questions':<26}{'before':>8}{'after':>8}"]
    for label, name in TABLE.items():
        values = list(metrics.get(name, {}).values())
        shown = f"{values[0]:>8.2f}{values[-1]:>8.2f}" if values else f"{'-':>8}{'-':>8}"
        lines.append(f"{label:<26}{shown}")
    return "\n".join(lines)


def graded_share(run_dir: Path) -> float | None:
    """Share of the training groups with three or more distinct rewards; None without dumps."""
    dumps = (run_dir / ROLLOUTS).glob("*.jsonl")
    groups = [rewards for dump in dumps for rewards in rewards_by_group(dump).values()]
    return sum(len(set(rewards)) >= 3 for rewards in groups) / len(groups) if groups else None


def draw(metrics: Metrics, path: Path) -> None:
    """Reward of the training rollouts, held-out accuracy, and searches per rollout, over steps."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(7, 6), layout="constrained")
    reward = metrics[REWARD]
    top.plot(list(reward), list(reward.values()), label="training reward")
    for label, name in list(TABLE.items())[:2]:
        if points := metrics.get(name):
            top.plot(list(points), list(points.values()), "o--", label=f"held-out {label}")
    top.set(ylim=(0, 1), ylabel="reward, accuracy")
    top.legend()
    turns = metrics.get(TURNS, {})
    bottom.plot(list(turns), [searches(number) for number in turns.values()])
    bottom.set(xlabel="step", ylabel="searches per rollout")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def runs_beside(run_dir: Path) -> Iterator[Path]:
    """This run and the finished ones in the same folder, by name; says which are left out."""
    marked = {mark.parent.resolve() for mark in run_dir.parent.glob(f"*/{MARK}")}
    for run in sorted({run_dir, *marked}):
        if run == run_dir:
            yield run
            continue
        try:
            read_metrics(run)
        except UserError as error:
            print(f"not in the report: {error}")
            continue
        if (run / CURVE).exists():
            yield run
        else:
            print(f"not in the report: {run} has not come to its end")


def write_page(run_dir: Path) -> Path:
    """Writes the page; alone if there is something with another run that its check did not see.

    Raises:
        UserError: there is no page.
    """
    for shown in (list(runs_beside(run_dir)), [run_dir]):
        words = ["report", *map(str, shown), "--out", str(run_dir / PAGE)]
        done = subprocess.run(
            [sys.executable, "-m", "verl_msgrpo.cli", *words],
            capture_output=True,
            text=True,
            timeout=PAGE_LIMIT_S,
        )
        if done.returncode == 0:
            return Path(done.stdout.splitlines()[-1])
    raise UserError(f"no report: {(done.stderr.splitlines() or ['no reason given'])[-1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run_dir", type=Path)
    run_dir = parser.parse_args().run_dir.resolve()
    try:
        metrics = read_metrics(run_dir)
        share = graded_share(run_dir)
    except UserError as error:
        print(f"summary.py: {error}", file=sys.stderr)
        return 2
    print(table(metrics))
    if share is not None:
        print(f"\ntraining groups with three or more distinct rewards: {share:.0%}")
    if REWARD in metrics:
        draw(metrics, run_dir / CURVE)
        print(f"learning curve  {run_dir / CURVE}")
    print(f"metrics         {run_dir / METRICS}")
    print(f"checkpoint      {run_dir / 'checkpoints'}")
    try:
        print(f"report          {write_page(run_dir)}")
    except (UserError, subprocess.TimeoutExpired) as error:
        print(error)  # the training is done, and its numbers are above
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
