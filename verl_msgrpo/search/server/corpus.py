"""Reads a corpus as a stream of passages: Search-R1's jsonl or HotpotQA's own contexts."""

import codecs
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from verl_msgrpo.errors import UserError

_CHUNK_BYTES = 1 << 20
_MAX_ROW_BYTES = 64 << 20  # a row above this is a damaged file, not a passage
_PARQUET_ROWS = 256

Advance = Callable[[int], object]  # called with the number of input bytes just read


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
                    digest = hashlib.blake2b(
                        contents.encode("utf-8", "replace"), digest_size=16
                    ).digest()
                    if digest not in seen:
                        seen.add(digest)
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
            yield from _read_parquet(path, advance)
            return
        with path.open("rb") as raw:
            counted = cast(BinaryIO, io.BufferedReader(_CountedReader(raw, advance), _CHUNK_BYTES))
            stream = (
                cast(BinaryIO, gzip.GzipFile(fileobj=counted)) if path.suffix == ".gz" else counted
            )
            head = stream.read(1)
            if head == codecs.BOM_UTF8[:1]:  # what else begins with it is no JSON
                head = (head + stream.read(2)).removeprefix(codecs.BOM_UTF8)
            head = head.strip()
            while head == b"" and (byte := stream.read(1)):
                head = byte.strip()
            if head == b"[":
                yield from _read_array(stream, path)
            else:
                yield from _read_lines(head, stream, path)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


class _CountedReader(io.RawIOBase):
    """Reports how many bytes of the file on disk have been read (compressed or not)."""

    def __init__(self, raw: BinaryIO, advance: Advance) -> None:
        self._raw = raw
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self._advance(len(data))
        return len(data)


def _read_lines(head: bytes, stream: BinaryIO, path: Path) -> Iterator[object]:
    number = 0
    while line := stream.readline(_MAX_ROW_BYTES):
        number += 1
        line, head = head + line, b""
        if len(line) >= _MAX_ROW_BYTES:
            raise UserError(f"{path}, line {number}: longer than {_MAX_ROW_BYTES >> 20} MiB")
        if line.isspace():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: not JSON: {error}") from None


def _read_array(stream: BinaryIO, path: Path) -> Iterator[object]:
    """Yields the elements of a JSON array one by one; its opening bracket is already read."""
    decoder = json.JSONDecoder()
    text = io.TextIOWrapper(stream, encoding="utf-8")
    buffer, ended = "", False
    try:
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


def _read_parquet(path: Path, advance: Advance) -> Iterator[object]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(f"{path}: reading parquet needs pyarrow (pip install pyarrow)") from None
    try:
        with pq.ParquetFile(path) as file:
            wanted = [c for c in ("id", "contents", "context") if c in file.schema_arrow.names]
            if not {"contents", "context"} & set(wanted):
                raise UserError(f'{path}: has neither a "contents" nor a "context" column')
            rows = max(1, file.metadata.num_rows)
            size = path.stat().st_size
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=wanted):
                yield from batch.to_pylist()
                advance(size * batch.num_rows // rows)
    except pa.ArrowException as error:
        raise UserError(f"{path}: not a readable parquet file: {error}") from None
