"""The page about the analysis says what its files say."""

import csv
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "analysis"
README = (FOLDER / "README.md").read_text()


def table(first_cells):
    """The cells of the README's table with that heading."""
    lines = README.split(f"| {first_cells}", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def test_table_of_the_bandits():
    with (FOLDER / "bandits.csv").open() as file:
        rows = {(r["kind"], r["level"], r["method"]): r for r in csv.DictReader(file)}
    lines = table("rewards, level")
    assert len(lines) == 16
    for problem, grpo, *differences in lines:
        kind, _, level = problem.partition(" ")
        assert float(grpo) == pytest.approx(
            100 * float(rows[kind, level, "GRPO"]["final"]), abs=0.06
        )
        for method, cell in zip(
            ("Dr. GRPO", "MS-GRPO exact", "MS-GRPO paper"), differences, strict=True
        ):
            row = rows[kind, level, method]
            expected = [100 * float(row["final_diff" + end]) for end in ("", "_low", "_high")]
            found = [float(number) for number in re.findall(r"[-+]?[\d.]+", cell)]
            assert found == pytest.approx(expected, abs=0.06)


def test_table_of_the_errors():
    errors = json.loads((FOLDER / "theory.json").read_text())["errors"]
    for cells in table("rewards | slope"):
        name = next(name for name in errors if name.startswith(cells[0]))
        expected = [
            errors[name][method][measure]
            for measure in ("gain", "correlation")
            for method in ("GRPO", "MS-GRPO exact")
        ]
        assert [float(cell) for cell in cells[1:]] == pytest.approx(expected, abs=6e-4)


def test_figures_are_there_and_small():
    figures = re.findall(r"\]\((\w+\.png)\)", README)
    assert len(figures) == 6
    assert all((FOLDER / figure).stat().st_size < 100_000 for figure in figures)
