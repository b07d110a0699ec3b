"""Writes verl's rows to parquet as a stream; the file appears when it is whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from verl_msgrpo.errors import UserError
from verl_msgrpo.tasks.rows import SCHEMA, Row

# Readers load a group of rows at a time, and tests of programs are long.
_GROUP_ROWS = 1000
_GROUP_CHARS = 32 << 20


class RowWriter:
    """Appends rows of `SCHEMA`, in groups of bounded size."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[Row] = []
        self._chars = 0
        self.count = 0

    def add(self, row: Row, chars: int) -> None:
        """Appends a row; `chars` is about how long its texts are."""
        self._rows.append(row)
        self._chars += chars
        self.count += 1
        if len(self._rows) >= _GROUP_ROWS or self._chars >= _GROUP_CHARS:
            self._flush()

    def close(self) -> None:
        """Ends the file."""
        self._flush()
        self._file.close()

    def abandon(self) -> None:
        """Closes the file as it is, which a full disk may refuse."""
        with suppress(OSError, pa.ArrowException):
            self._file.close()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA))
        self._rows, self._chars = [], 0


@contextmanager
def written(folder: Path) -> Iterator["OutputFiles"]:
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


class OutputFiles:
    """The parquet files of one preparation, under temporary names until they are published."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, RowWriter] = {}

    def open(self, name: str) -> RowWriter:
        """A new file that will be called `name`."""
        self._writers[name] = RowWriter(self._temporary(name))
        return self._writers[name]

    def publish(self) -> None:
        """Gives every file its name."""
        for writer in self._writers.values():
            writer.close()
        for name in list(self._writers):
            os.replace(self._temporary(name), self._folder / name)
            del self._writers[name]

    def discard(self) -> None:
        """Removes what was not published."""
        for name, writer in self._writers.items():
            writer.abandon()
            self._temporary(name).unlink(missing_ok=True)

    def _temporary(self, name: str) -> Path:
        return self._folder / f".{name}.{os.getpid()}.tmp"
