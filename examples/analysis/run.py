"""Draws the figures of this folder and writes the numbers behind them.

    python examples/analysis/run.py               # about a minute on two idle cores
    python examples/analysis/run.py --runs 2048 --out examples/analysis   # what README.md reports

In the folder --out: PNGs, theory.json, bandits.csv and rates.csv.
"""

import argparse
import csv
import json
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import bandit_figures
import theory_figures
import torch
from theory_numbers import theory_numbers

from verl_msgrpo.analysis.comparison import Row, Study, StudySettings, compare_methods, summarise
from verl_msgrpo.common.numbers import integer_argument

PROBLEMS = [
    (kind, level)
    for kind, levels in {
        "binary": (0.0, 1.5, 3.0),
        "graded": (0.0, 1.0, 3.0),
        "continuous": (0.0, 0.75, 1.5),
        "heavy": (1.0, 2.5, 6.0),
        "skewed": (0.0, 0.5, 1.0),
    }.items()
    for level in levels
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--runs", type=integer_argument(1), default=512, help="reported runs a method (512)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (0)")
    parser.add_argument("--workers", type=integer_argument(1), default=2, help="processes (2)")
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/analysis"), help="folder (outputs/analysis)"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()

    numbers = theory_numbers()
    (args.out / "theory.json").write_text(json.dumps(numbers, indent=1) + "\n")
    theory_figures.draw(numbers, args.out)
    print(f"theory: {time.monotonic() - start:.0f} s")

    settings = StudySettings(
        choice_runs=max(args.runs // 4, 32), report_runs=args.runs, seed=args.seed
    )
    with ProcessPoolExecutor(
        args.workers, get_context("spawn"), torch.set_num_threads, (1,)
    ) as workers:
        running = [workers.submit(compare_methods, *problem, settings) for problem in PROBLEMS]
        studies = [each.result() for each in running]
    rows = summarise(studies)
    write_csv(args.out / "bandits.csv", rows)
    rates = rate_rows(studies)
    write_csv(args.out / "rates.csv", rates)
    bandit_figures.draw(rows, rates, args.out)
    print(f"everything: {time.monotonic() - start:.0f} s, in {args.out}")
    for study in studies:
        for method in study.at_edge:
            print(f"{study.kind} {study.level}: best rate of {method} ends the grid")
    return 0


def rate_rows(studies: Iterable[Study]) -> list[Row]:
    """One row per problem, method and learning rate that was tried."""
    return [
        {"kind": s.kind, "level": s.level, "method": method, "rate": rate, "final": final}
        for s in studies
        for method, curve in s.curves.items()
        for rate, final in curve.T.tolist()
    ]


def write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)


def _short(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 6):.5g}"


if __name__ == "__main__":
    raise SystemExit(main())
