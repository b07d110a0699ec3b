"""JSON lines in bounded memory, with the place in the file that errors name.

`lines_of` is the one loop; those who need every line call `objects_of`, which stops at the first
bad one, and those who read what is still being written skip the lines that have a problem.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from verl_msgrpo.errors import UserError

MAX_LINE_BYTES = 2**30  # LiveCodeBench has all tests of a problem in one line
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line of a file that is not blank.

    number: from 1.
    value: what it holds, None where there is a problem.
    problem: why nothing could be read, in a few words.
    """

    number: int
    value: object
    problem: str | None = None


def lines_of(stream: BinaryIO, limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yields each line; one longer than `limit` bytes is passed over as one line with a problem."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) > limit and not line.endswith(b"\n"):
            while (more := stream.readline(limit)) and not more.endswith(b"\n"):
                pass
            yield Line(number, None, f"longer than {limit} bytes")
            continue
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.strip():
            value, problem = parsed(line)
            yield Line(number, value, problem)


def parsed(data: bytes | str) -> tuple[object, str | None]:
    """The value of a JSON text, or None and why there is none."""
    try:
        return json.loads(data), None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        return None, f"broken JSON ({getattr(error, 'msg', type(error).__name__)})"


def objects_of(path: Path, limit: int = MAX_LINE_BYTES) -> Iterator[tuple[int, dict[str, object]]]:
    """Yields (line number, object) of a file that is whole.

    Raises:
        UserError: the file cannot be read, or a line holds no JSON object or is too long.
    """
    try:
        with path.open("rb") as stream:
            yield from objects_in(stream, str(path), limit)
    except IsADirectoryError:
        names = sorted(file.name for file in path.glob("*.jsonl"))
        hint = f", for example {path / names[-1]}" if names else ""
        raise UserError(f"{path}: a folder; name one file of it{hint}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def objects_in(
    stream: BinaryIO, name: str, limit: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, dict[str, object]]]:
    """The same of a stream that is open already, called `name` in errors.

    Raises:
        UserError: a line holds no JSON object or is too long.
        OSError, EOFError: of the stream.
    """
    for number, value, problem in lines_of(stream, limit):
        if problem is not None:
            raise UserError(f"{name}, line {number}: {problem}; was the file cut short?")
        if not isinstance(value, dict):
            raise UserError(f"{name}, line {number}: not a JSON object")
        yield number, value
