"""Tables and figures from the runs that have ended, be they all or a few.

    python examples/compare/summarise.py [--results DIR]

Writes summary.md and the figures into the folder of the CSVs, and the tables into README.md.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import figures
from collect import CORRECTION, DISTINCT, SCALE
from plan import ALL_METHODS, BASELINE, CONTROL, EXACT, METHODS, REWARDS, SENSITIVITY, plan
from quantities import (
    FINAL,
    MEAN,
    QUANTITIES,
    Quantity,
    Results,
    by_seed,
    difference,
    mean_and_sd,
    mean_of,
)
from results_file import read_results

from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.intervals import Mean

Rows = list[list[str]]  # the first is the heading

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- written by summarise.py: -->", "<!-- end -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--readme", type=Path, default=HERE / "README.md")
    args = parser.parse_args()
    try:
        results = read_all(args.results)
        figures.draw(results, args.results)
    except UserError as error:
        print(f"summarise.py: {error}", file=sys.stderr)
        return 2
    text = summary(results)
    (args.results / "summary.md").write_text(text, encoding="utf-8")
    readme = args.readme.read_text(encoding="utf-8")
    args.readme.write_text(with_tables(readme, text), encoding="utf-8")
    print(text)
    return 0


def read_all(folder: Path) -> Results:
    """The runs of the plan that have ended.

    Raises:
        UserError: none has, or a file is broken.
    """
    paths = {run: folder / f"{run.name}.csv" for run in plan()}
    results = {run: read_results(path) for run, path in paths.items() if path.exists()}
    if not results:
        raise UserError(f"{folder}: no run has ended; bash examples/compare/run.sh")
    return results


def with_tables(readme: str, text: str) -> str:
    """The page with the text between its marks; as it was if it has none."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}{END}{after}" if begin and end else readme


def summary(results: Results) -> str:
    """All tables as Markdown."""
    parts = [f"{len(results)} of {len(plan())} runs have ended."]
    for reward in REWARDS:
        parts += section(f"{reward.capitalize()} rewards", methods_table(results, reward))
        parts += section("", difference_table(results, reward))
    parts += section("Heterogeneity of the rewards", heterogeneity_table(results))
    parts += section(
        "Control: GRPO with its learning rate times the mean c", control_table(results)
    )
    parts += section("Sensitivity to M and K", sensitivity_table(results))
    return "\n\n".join(parts) + "\n"


def section(title: str, rows: Rows) -> list[str]:
    """A table under its title; nothing where it has no row but its heading."""
    return [*([f"**{title}**"] if title else []), markdown(rows)] if len(rows) > 1 else []


def methods_table(results: Results, reward: str) -> Rows:
    """Mean over seeds, and in parentheses the standard deviation over seeds."""
    rows = [["mean (sd over seeds)", "seeds", *(quantity.name for quantity in QUANTITIES)]]
    for name, method in METHODS.items():
        values = {q: list(by_seed(results, reward, name, q).values()) for q in QUANTITIES}
        if seeds := len(values[FINAL]):
            cells = [_with_sd(values[q], q.decimals) for q in QUANTITIES]
            rows.append([method.label, str(seeds), *cells])
    return rows


def difference_table(results: Results, reward: str) -> Rows:
    """Paired differences from GRPO with their intervals."""
    rows = [["minus GRPO [95 % interval]", "pairs", *(q.name for q in QUANTITIES)]]
    for name, method in METHODS.items():
        if name != BASELINE:
            rows += _difference_row(results, method.label, reward, name, BASELINE)
    return rows


def heterogeneity_table(results: Results) -> Rows:
    """What the exact runs met and did, and how far they came, seed by seed."""
    rows = [
        [
            "MS-GRPO exact",
            "mean c",
            "mean correction",
            "distinct rewards in a group",
            *(f"{q.name}, minus GRPO" for q in (FINAL, MEAN)),
        ]
    ]
    for run, columns in results.items():
        if run.method == EXACT:
            cells = [f"{mean_of(columns, name):.3f}" for name in (SCALE, CORRECTION, DISTINCT)]
            gains = [_gain(results, run.reward, str(run.seed), q) for q in (FINAL, MEAN)]
            rows.append([f"{run.reward}, seed {run.seed}", *cells, *gains])
    return rows


def control_table(results: Results) -> Rows:
    """The control between GRPO and MS-GRPO, over the seeds that it has."""
    rows = [["", "pairs", *(quantity.name for quantity in QUANTITIES)]]
    for reward in REWARDS:
        for method, other in ((CONTROL, BASELINE), (EXACT, CONTROL)):
            label = f"{reward}: {ALL_METHODS[method].label} minus {ALL_METHODS[other].label}"
            rows += _difference_row(results, label, reward, method, other)
    return rows


def sensitivity_table(results: Results) -> Rows:
    """Other M and K against the exact average, over the seeds that both have."""
    rows = [["minus MS-GRPO exact", "design noise", "pairs", *(q.name for q in QUANTITIES)]]
    for reward in REWARDS:
        for name in ("ms_grpo_paper", *SENSITIVITY):
            label = f"{reward}: {ALL_METHODS[name].label}"
            own = [c for run, c in results.items() if (run.reward, run.method) == (reward, name)]
            noise = [mean_of(columns, "ms_grpo/design_noise") for columns in own]
            for row in _difference_row(results, label, reward, name, EXACT):
                rows.append([row[0], f"{sum(noise) / len(noise):.3f}", *row[1:]])
    return rows


def markdown(rows: Rows) -> str:
    """A table with the first row as its heading."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _difference_row(
    results: Results, label: str, reward: str, method: str, other: str
) -> Iterable[list[str]]:
    """One row, or none where there is no common seed."""
    found = [(difference(results, reward, method, other, q), q) for q in QUANTITIES]
    changes = [(change, q) for change, q in found if change is not None]
    if changes:
        cells = [_with_interval(change, q.decimals) for change, q in changes]
        yield [label, str(changes[0][0].count), *cells]


def _gain(results: Results, reward: str, seed: str, quantity: Quantity) -> str:
    ours = by_seed(results, reward, EXACT, quantity)[seed]
    grpo = by_seed(results, reward, BASELINE, quantity).get(seed, math.nan)
    return f"{ours - grpo:+.{quantity.decimals}f}"


def _with_sd(values: Sequence[float], decimals: int) -> str:
    mean, sd = mean_and_sd(values)
    return f"{mean:.{decimals}f}" + ("" if math.isnan(sd) else f" ({sd:.{decimals}f})")


def _with_interval(mean: Mean, decimals: int) -> str:
    text = f"{mean.value:+.{decimals}f}"
    if math.isnan(mean.low):
        return text
    return f"{text} [{mean.low:+.{decimals}f}, {mean.high:+.{decimals}f}]"


if __name__ == "__main__":
    raise SystemExit(main())
