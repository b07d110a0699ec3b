"""Passages on disk: one JSON document a line, and where each line starts.

The server reads a hit with one `pread` and sends the bytes as they are: no passage is held in
memory or parsed again. bm25s's own corpus class keeps its offsets as a Python list (about 40 bytes
a passage) and parses each hit.
"""

import json
import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.corpus import Passage

PASSAGES_FILE = "passages.jsonl"
OFFSETS_FILE = "offsets.npy"


def dump_document(identifier: str | int, contents: str) -> bytes:
    """One document of Search-R1's protocol as UTF-8 JSON on one line."""
    text = json.dumps({"id": identifier, "contents": contents}, ensure_ascii=False)
    return text.encode("utf-8", "replace")  # a lone surrogate cannot be encoded: "?"


def write_passages(directory: Path, passages: Iterable[Passage]) -> int:
    """Writes all passages below `directory` and returns how many there were."""
    offsets = array("q", [0])
    with (directory / PASSAGES_FILE).open("wb", buffering=1 << 20) as file:
        for passage in passages:
            line = dump_document(passage.id, passage.contents) + b"\n"
            file.write(line)
            offsets.append(offsets[-1] + len(line))
    np.save(directory / OFFSETS_FILE, np.frombuffer(offsets, dtype=np.int64))
    return len(offsets) - 1


class PassageStore:
    """Read access to the passages of an index; safe to use from several threads."""

    def __init__(self, directory: Path) -> None:
        path = directory / PASSAGES_FILE
        self._offsets = np.load(directory / OFFSETS_FILE, mmap_mode="r", allow_pickle=False)
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if int(self._offsets[-1]) != os.fstat(self._file).st_size:
            os.close(self._file)
            raise UserError(f"{path}: does not fit {OFFSETS_FILE}; build the index again")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def text_bytes(self) -> int:
        """Size of the stored documents."""
        return int(self._offsets[-1])

    def document(self, row: int) -> bytes:
        """The JSON of passage `row`."""
        start, end = int(self._offsets[row]), int(self._offsets[row + 1]) - 1
        return os.pread(self._file, end - start, start)

    def contents(self) -> Iterator[str]:
        """Streams the contents of every passage, in order."""
        with open(self._file, "rb", buffering=1 << 20, closefd=False) as file:
            file.seek(0)
            for line in file:
                yield json.loads(line)["contents"]

    def close(self) -> None:
        """Closes the file; the store must not be used afterwards."""
        os.close(self._file)
