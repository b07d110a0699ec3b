"""Passages: streamed out of a corpus's files, and kept on disk as the server reads them.

A corpus holds Search-R1's rows or HotpotQA's own contexts. On disk, each passage is one JSON
document a line, and an array says where each line starts: the server reads a hit with one `pread`
and sends the bytes as they are, so that no passage is held in memory or parsed again. bm25s's own
corpus class keeps its offsets as a Python list (about 40 bytes per passage) and parses each hit.
"""

import codecs
import gzip
import io
import json
import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np

from verl_msgrpo.common.json_lines import lines_of
from verl_msgrpo.common.text import digest, encodable
from verl_msgrpo.errors import UserError

PASSAGES_FILE = "passages.jsonl"
OFFSETS_FILE = "offsets.npy"
_BUFFER_BYTES = _CHUNK_BYTES = 1 << 20
_MAX_ROW_BYTES = 64 << 20  # a row above this is a damaged file, not a passage

Advance = Callable[[int], object]  # called with the number of bytes of a file that are done


class Passage(NamedTuple):
    """One passage; `contents` is the title, a newline, the text."""

    id: str | int
    contents: str


def read_passages(paths: Iterable[Path], advance: Advance = lambda _: None) -> Iterator[Passage]:
    """Streams the passages of all files, in order.

    Rows are Search-R1's {"id", "contents"} or HotpotQA's {"context": {"title", "sentences"}} (the
    original release's [[title, [sentence, ...]], ...] too), told apart row by row. HotpotQA's
    paragraphs recur across questions: one with a title and text seen before is left out, and the
    rest are numbered from 0. Files: .jsonl, .json (an array or one row a line), .parquet, the first
    two also with .gz.

    Raises UserError naming the file and the row.
    """
    seen: set[bytes] = set()  # 16 bytes for each distinct HotpotQA paragraph
    for path in paths:
        number = 0
        for number, row in enumerate(_read_rows(path, advance), 1):
            where = f"{path}, row {number}"
            if not isinstance(row, dict):
                raise UserError(f"{where}: not a JSON object")
            if "contents" in row:
                yield _search_r1_passage(row, where)
            elif "context" in row:
                for contents in _hotpotqa_contents(row["context"], where):
                    key = digest(encodable(contents))
                    if key not in seen:
                        seen.add(key)
                        yield Passage(str(len(seen) - 1), contents)
            else:
                raise UserError(
                    f'{where}: neither "contents" (Search-R1) nor "context" (HotpotQA); '
                    f"fields: {', '.join(map(str, list(row)[:8])) or 'none'}"
                )
        if number == 0:
            raise UserError(f"{path}: holds no rows")


def _search_r1_passage(row: dict[str, object], where: str) -> Passage:
    identifier, contents = row.get("id"), row["contents"]
    if isinstance(identifier, bool) or not isinstance(identifier, str | int):
        raise UserError(f'{where}: "id" must be a string or an integer')
    if not isinstance(contents, str):
        raise UserError(f'{where}: "contents" must be a string: title, newline, text')
    return Passage(identifier, contents)


def _hotpotqa_contents(context: object, where: str) -> Iterator[str]:
    """Yields title, newline, text for each paragraph of one question."""
    if isinstance(context, dict):
        titles, paragraphs = context.get("title"), context.get("sentences")
        if not isinstance(titles, list) or not isinstance(paragraphs, list):
            raise UserError(f'{where}: "context" needs the lists "title" and "sentences"')
        if len(titles) != len(paragraphs):
            raise UserError(f"{where}: {len(titles)} titles but {len(paragraphs)} paragraphs")
        pairs = list(zip(titles, paragraphs, strict=True))
    elif isinstance(context, list) and all(isinstance(p, list) and len(p) == 2 for p in context):
        pairs = [(title, sentences) for title, sentences in context]
    else:
        raise UserError(f'{where}: "context" is neither a struct nor a list of pairs')
    for title, sentences in pairs:
        if (
            not isinstance(title, str)
            or not isinstance(sentences, list)
            or not all(isinstance(sentence, str) for sentence in sentences)
        ):
            raise UserError(f"{where}: a paragraph is not a title with a list of sentences")
        # Sentences come with or without a leading space, depending on the release.
        yield f"{title.strip()}\n{' '.join(filter(None, (s.strip() for s in sentences)))}"


def _read_rows(path: Path, advance: Advance) -> Iterator[object]:
    try:
        if path.suffix == ".parquet":
            yield from _parquet_rows(path, advance)
            return
        with io.BufferedReader(path.open("rb", buffering=0), _BUFFER_BYTES) as file:
            packed = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else None
            stream = cast(io.BufferedReader, packed or file)  # both can peek
            rows = _array_rows if _opens_an_array(stream) else _line_rows
            done = 0
            for row in rows(stream, path):
                yield row
                advance(file.tell() - done)  # of the file on disk, compressed or not
                done = file.tell()
            advance(file.tell() - done)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def _opens_an_array(stream: io.BufferedReader) -> bool:
    """Whether the first byte that is not blank is "["; it stays in the stream."""
    while window := stream.peek(1):  # as much as is buffered
        text = window.removeprefix(codecs.BOM_UTF8).lstrip()
        if text:
            return text.startswith(b"[")
        stream.read(len(window))
    return False


def _line_rows(stream: BinaryIO, path: Path) -> Iterator[object]:
    for number, value, problem in lines_of(stream, _MAX_ROW_BYTES):
        if problem is not None:
            raise UserError(f"{path}, line {number}: {problem}; was the file cut short?")
        yield value


def _array_rows(stream: BinaryIO, path: Path) -> Iterator[object]:
    """Yields the elements of a JSON array one by one."""
    decoder = json.JSONDecoder()
    text = io.TextIOWrapper(stream, encoding="utf-8-sig")
    buffer, ended = "", False
    try:
        while not buffer:
            buffer = text.read(_CHUNK_BYTES).lstrip()
        buffer = buffer.removeprefix("[")
        while True:
            buffer = buffer.lstrip().removeprefix(",").lstrip()
            if buffer.startswith("]"):
                return
            try:
                row, end = decoder.raw_decode(buffer)
                # Up to the delimiter, or a number cut by the buffer's end would pass for a whole.
                complete = end < len(buffer) or ended
            except ValueError:
                complete = False
            if complete:
                yield row
                buffer = buffer[end:]
                continue
            if ended or len(buffer) > _MAX_ROW_BYTES:
                raise UserError(f"{path}: the JSON array is damaged or cut short")
            more = text.read(max(_CHUNK_BYTES, len(buffer)))
            ended = not more
            buffer += more
    except (UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not a JSON array in UTF-8: {error}") from None
    finally:
        text.detach()


def _parquet_rows(path: Path, advance: Advance) -> Iterator[object]:
    # Here, as a server that starts has no use for it.
    import pyarrow as pa
    import pyarrow.parquet as pq

    from verl_msgrpo.common.parquet import stream

    try:
        names = pq.read_schema(path).names
        wanted = [name for name in ("id", "contents", "context") if name in names]
        if not {"contents", "context"} & set(wanted):
            raise UserError(f'{path}: has neither a "contents" nor a "context" column')
        rows = max(1, pq.read_metadata(path).num_rows)
        size = path.stat().st_size
        yield from stream(path, wanted, lambda count: advance(size * count // rows))
    except pa.ArrowException as error:
        raise UserError(f"{path}: not a readable parquet file: {error}") from None


def dump_document(identifier: str | int, contents: str) -> bytes:
    """One document of Search-R1's protocol as UTF-8 JSON on one line."""
    text = json.dumps({"id": identifier, "contents": contents}, ensure_ascii=False)
    return encodable(text).encode()


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
