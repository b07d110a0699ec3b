"""Summaries and comparisons as text for the console, and as CSV."""

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.compare import Difference
from verl_msgrpo.evaluation.quantities import SourceSummary

MAX_NAME_CHARS = 60

SUMMARY_COLUMNS = (
    *("data_source", "metric", "quantity", "value", "low", "high", "prompts"),
    *("samples", "group_size", "short_groups", "unscored"),
)
DIFFERENCE_COLUMNS = ("data_source", "quantity", "a", "b", "difference", "low", "high", "pairs")


def summary_text(summaries: Sequence[SourceSummary]) -> str:
    """A block for each data_source."""
    blocks = []
    for r in summaries:
        head = f"{shown(r.source)}: " if r.source else ""
        head += f"{r.prompts} prompts, {r.samples} samples, result: {shown(r.metric)}"
        if r.short_groups:
            head += f", {r.short_groups} groups with fewer than {r.group_size} samples"
        if r.unscored:
            head += f", {r.unscored} samples without a result (counted as 0)"
        rows = [["", "mean", "95 % interval", "prompts"]]
        for e in r.estimates:
            value, low, high = _numbers(e.value, e.low, e.high)
            rows.append([shown(e.quantity), value, _interval(low, high), str(e.prompts)])
        blocks.append(f"{head}\n{_aligned(rows)}")
    return "\n\n".join(blocks)


def difference_text(differences: Sequence[Difference]) -> str:
    """A line for each quantity of each data_source."""
    rows = [["", "", "A", "B", "B - A", "95 % interval", "pairs"]]
    for d in differences:
        *numbers, low, high = _numbers(d.first, d.second, d.difference, d.low, d.high)
        cells = [shown(d.source), shown(d.quantity), *numbers, _interval(low, high), str(d.pairs)]
        rows.append(cells)
    return _aligned(rows)


def summary_rows(summaries: Sequence[SourceSummary]) -> list[list[object]]:
    """The rows under SUMMARY_COLUMNS."""
    return [
        [
            *(r.source, r.metric, e.quantity, e.value, e.low, e.high, e.prompts),
            *(r.samples, r.group_size, r.short_groups, r.unscored),
        ]
        for r in summaries
        for e in r.estimates
    ]


def difference_rows(differences: Sequence[Difference]) -> list[list[object]]:
    """The rows under DIFFERENCE_COLUMNS."""
    return [list(dataclasses.astuple(difference)) for difference in differences]


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes the file; a number that does not exist is an empty cell."""
    try:
        with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            for row in rows:
                writer.writerow("" if value != value else value for value in row)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def shown(name: str) -> str:
    """A name from a file, short and without control characters."""
    name = "".join(c if c.isprintable() else "\ufffd" for c in name[: MAX_NAME_CHARS + 1])
    return name if len(name) <= MAX_NAME_CHARS else name[: MAX_NAME_CHARS - 1] + "…"


def _numbers(*values: float) -> list[str]:
    """With four decimals; with one where a length in the hundreds is among them."""
    decimals = 4 if np.nanmax(np.abs(values)) < 100 else 1
    return ["" if math.isnan(value) else f"{value:.{decimals}f}" for value in values]


def _interval(low: str, high: str) -> str:
    return f"{low} .. {high}" if low else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of names, which have no heading, to the left, numbers to the right."""
    columns = []
    for column in zip(*rows, strict=True):
        width = max(map(len, column))
        columns.append([c.rjust(width) if column[0] else c.ljust(width) for c in column])
    return "\n".join(f"  {'  '.join(line)}".rstrip() for line in zip(*columns, strict=True))
