"""The CSV of one run, read back."""

import csv
from pathlib import Path

from verl_msgrpo.errors import UserError
from verl_msgrpo.report.runs import Series


def read_results(path: Path) -> dict[str, Series]:
    """A series for each column of which the file has any number.

    Raises:
        UserError: the file is not one of the comparison.
    """
    columns: dict[str, Series] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, strict=True):
                step = int(row.pop("step"))
                for name, value in row.items():
                    if value:
                        columns.setdefault(name, {})[step] = float(value)
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise UserError(f"{path}: not the results of a run ({error})") from None
    if not columns:
        raise UserError(f"{path}: not the results of a run (no rows)")
    return columns
