"""Rows of a JSON lines file, one at a time, with the place in the file that errors name."""

import json
from collections.abc import Iterator
from pathlib import Path

from verl_msgrpo.errors import UserError

MAX_LINE_BYTES = 2**28  # a row of LiveCodeBench holds its tests: tens of MB


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yields (line number, row); blank lines are skipped.

    Raises:
        UserError: the file cannot be read, or a line is no JSON object or longer than 256 MiB.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise UserError(f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
                if line.strip():
                    yield number, _parse(line, path, number)
    except IsADirectoryError:
        names = sorted(file.name for file in path.glob("*.jsonl"))
        hint = f", for example {path / names[-1]}" if names else ""
        raise UserError(f"{path}: a folder; name one file of it{hint}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _parse(line: bytes, path: Path, number: int) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", type(error).__name__)
        raise UserError(
            f"{path}, line {number}: broken JSON ({reason}); was the file cut short?"
        ) from None
    if not isinstance(row, dict):
        raise UserError(f"{path}, line {number}: not a JSON object")
    return row
