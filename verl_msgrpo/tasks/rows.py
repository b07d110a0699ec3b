"""A problem of any task, verl's row for it, and the files of such rows.

verl concatenates the files that it trains on, which fails where the fields of a struct differ. So
every row has the same fields, `ground_truth` is a string in all of them (JSON, where it is more
than one answer), and no value is null: "" and 0 are for what a task does not have.
"""

import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from verl_msgrpo.common.text import digest
from verl_msgrpo.errors import UserError
from verl_msgrpo.tasks.prompts import fill

SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("agent_name", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    ("index", pa.int64()),  # in its file, from 0
                    ("split", pa.string()),  # train or validation
                    ("id", pa.string()),  # the data set's own
                    ("origin", pa.string()),  # the data set, or its part, that the row is from
                    ("num_options", pa.int64()),  # of multiple choice, else 0
                    ("kind", pa.string()),  # bridge, comparison, stdin, functional, ...
                    ("difficulty", pa.string()),
                    ("date", pa.string()),  # of the contest
                ]
            ),
        ),
    ]
)

Row = dict[str, object]


@dataclass(frozen=True)
class TaskProblem:
    """One example of a data set, understood.

    text: the problem as the model reads it, without instructions.
    ground_truth: what the task's reward compares with.
    """

    text: str
    ground_truth: str
    id: str = ""
    origin: str = ""
    num_options: int = 0
    kind: str = ""
    difficulty: str = ""
    date: str = ""

    def key(self) -> bytes:
        """Equal for problems that differ in blanks, capitals or `$` only. 16 bytes."""
        text = unicodedata.normalize("NFC", self.text).casefold().replace("$", "")
        return digest("".join(text.split()))


def verl_row(
    problem: TaskProblem,
    *,
    data_source: str,
    origin: str,
    ability: str,
    agent_name: str,
    template: str,
    split: str,
    index: int,
) -> Row:
    """A row of `SCHEMA`.

    Args:
        data_source: the task's name for its reward.
        origin: the file, for problems that do not say where they are from.
        template: see `prompts`.
        index: the row's place in its file, from 0.
    """
    return {
        "data_source": data_source,
        "agent_name": agent_name,
        "prompt": [{"role": "user", "content": fill(template, problem.text)}],
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
        "extra_info": {
            "index": index,
            "split": split,
            "id": problem.id,
            "origin": problem.origin or origin,
            "num_options": problem.num_options,
            "kind": problem.kind,
            "difficulty": problem.difficulty,
            "date": problem.date,
        },
    }


# --- Files ----------------------------------------------------------------------------------------

# Readers load a group of rows at a time, and tests of programs are long.
_GROUP_ROWS = 1000
_GROUP_CHARS = 32 << 20


class RowWriter:
    """Appends rows of `SCHEMA` to a parquet file, in groups of bounded size."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[Row] = []
        self._chars = 0

    def add(self, row: Row, chars: int) -> None:
        """Appends a row; `chars` is roughly how long its texts are."""
        self._rows.append(row)
        self._chars += chars
        if len(self._rows) >= _GROUP_ROWS or self._chars >= _GROUP_CHARS:
            self._flush()

    def close(self) -> None:
        """Ends the file."""
        self._flush()
        self._file.close()

    def abandon(self) -> None:
        """Closes the file as it is, which a full disk may refuse, and removes it."""
        with suppress(OSError, pa.ArrowException):
            self._file.close()
        self.path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA))
        self._rows, self._chars = [], 0


class OutputFiles:
    """The parquet files of one folder, under temporary names until they are published."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, RowWriter] = {}

    def open(self, name: str) -> RowWriter:
        """A new file that will be called `name`."""
        self._writers[name] = RowWriter(self._folder / f".{name}.{os.getpid()}.tmp")
        return self._writers[name]

    def publish(self) -> None:
        """Gives every file its name."""
        for writer in self._writers.values():
            writer.close()
        for name in list(self._writers):
            os.replace(self._writers[name].path, self._folder / name)
            del self._writers[name]

    def discard(self) -> None:
        """Removes what was not published."""
        for writer in self._writers.values():
            writer.abandon()


@contextmanager
def output_files(folder: Path) -> Iterator[OutputFiles]:
    """Files of a folder that all appear when the block ends well, and not at all otherwise.

    Raises:
        UserError: the folder cannot be written to.
    """
    files = OutputFiles(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield files
        files.publish()
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error}") from None
    finally:
        files.discard()
