"""The whole rows of a JSON lines file that may still be written to, or was cut short."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.json_lines import MAX_LINE_BYTES


def whole_lines(path: Path) -> Iterator[dict[str, object] | None]:
    """Yields each line's JSON object; None for a line that holds none. Skips blank lines.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.strip():
                    yield _parsed(line)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _parsed(line: bytes) -> dict[str, object] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def finite(value: object) -> float | None:
    """The value as float64; None for anything but a finite number."""
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
