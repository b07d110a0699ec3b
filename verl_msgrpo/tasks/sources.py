"""Where raw rows come from: local files and folders, or data sets of the Hugging Face hub.

Hub data sets are resolved to their files by `datasets`, which runs no code of a data set, and the
files of the one split are downloaded. Rows are read as the files hold them: `datasets` guesses the
types of JSON anew, and makes the answer "007" a 7.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from verl_msgrpo.common import parquet
from verl_msgrpo.common.json_lines import objects_in, parsed
from verl_msgrpo.common.text import first_line
from verl_msgrpo.errors import UserError

_HUB_NAME = re.compile(
    r"(?P<name>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.-]+))?(?:@(?P<revision>[^:@]+))?"
    r"(?::(?P<split>[\w.-]+))?"
)
_HUB_FILE = re.compile(
    r"hf://datasets/(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:convert|pr)/\w+|[^/@]+))?"
    r"/(?P<path>.+)"
)


class RawRow(NamedTuple):
    """A row of a file: where it is, for messages, and what it holds."""

    where: str
    fields: dict[str, object]


def files_of(source: str, split: str) -> list[str]:
    """The files of a source: local paths and `hf://` addresses, sorted as the source has them.

    Args:
        source: a file; a folder; `owner/name[/config][@revision][:split]` on the hub; or a file on
            the hub, `hf://datasets/owner/name[@revision]/path`, where `*` stands for many.
        split: which split of a folder or hub data set that does not say it itself.

    Raises:
        UserError: there is nothing there, or the hub cannot be reached.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return [str(path)]
    if path.is_dir():
        return _split_files(source, split, str(path))
    if source.startswith("hf://"):
        return _matching(source)
    if reader_of(source) is not None:
        raise UserError(f"{source}: there is no such file")
    parts = _HUB_NAME.fullmatch(source)
    if parts is None:
        raise UserError(
            f"{source}: neither a file or folder that exists nor the name of a hub data set, "
            "owner/name[/config][@revision][:split]"
        )
    return _split_files(
        source, parts["split"] or split, parts["name"], parts["config"], parts["revision"]
    )


def rows_of(file: str, columns: Sequence[str] | None = None) -> Iterator[RawRow]:
    """Streams the rows of a local path or `hf://` address; a hub file is downloaded first.

    columns: those wanted of a parquet file, where it has them; all by default.

    Raises:
        UserError: the file cannot be read; the message names it and the line.
    """
    read = reader_of(file)
    if read is None:
        raise UserError(f"{file}: not a file of rows ({', '.join(READERS)})")
    path = _downloaded(file) if file.startswith("hf://") else Path(file)
    try:
        yield from read(path, file, columns)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise UserError(f"{file}: cannot be read: {first_line(error)}") from None


def columns_of(file: str) -> list[str]:
    """The names of the columns of a file, for JSON those of its first row; raises UserError."""
    if file.endswith(".parquet"):
        path = _downloaded(file) if file.startswith("hf://") else Path(file)
        try:
            return list(pq.read_schema(path).names)
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{file}: cannot be read: {first_line(error)}") from None
    return [name for row in islice(rows_of(file), 1) for name in row.fields]


def _parquet(path: Path, name: str, columns: Sequence[str] | None) -> Iterator[RawRow]:
    names = pq.read_schema(path).names
    wanted = names if columns is None else [column for column in names if column in columns]
    for number, fields in enumerate(parquet.stream(path, wanted), 1):
        yield RawRow(f"{name}, row {number}", fields)


def _json_lines(path: Path, name: str, columns: Sequence[str] | None) -> Iterator[RawRow]:
    with _opened(path) as stream:
        for number, fields in objects_in(stream, name):
            yield RawRow(f"{name}, line {number}", fields)


def _json_document(path: Path, name: str, columns: Sequence[str] | None) -> Iterator[RawRow]:
    """A JSON array of rows, or, under the same ending, one row per line."""
    with _opened(path) as stream:
        head = stream.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if head != b"[":
        yield from _json_lines(path, name, columns)
        return
    with _opened(path) as stream:
        items, problem = parsed(stream.read())
    if problem is not None:
        raise UserError(f"{name}: {problem}; was the file cut short?")
    for number, item in enumerate(cast(list[object], items), 1):
        if not isinstance(item, dict):
            raise UserError(f"{name}, row {number}: not a JSON object")
        yield RawRow(f"{name}, row {number}", item)


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb"))


_Reader = Callable[[Path, str, Sequence[str] | None], Iterator[RawRow]]
READERS: dict[str, _Reader] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".json": _json_document,
    ".jsonl.gz": _json_lines,
    ".json.gz": _json_document,
}


def reader_of(file: str) -> _Reader | None:
    """The reader for a file's ending, None if it is none of `READERS`."""
    return next((read for ending, read in READERS.items() if file.endswith(ending)), None)


# --- The hub --------------------------------------------------------------------------------------


def _split_files(
    source: str, split: str, name: str, config: str | None = None, revision: str | None = None
) -> list[str]:
    """The files of one split of a folder or hub data set, by its own description or their names."""
    import datasets

    try:
        builder = datasets.load_dataset_builder(name, config, revision=revision)
        splits = {str(name): files for name, files in (builder.config.data_files or {}).items()}
    except Exception as error:  # of the hub, the network and file formats, by several libraries
        raise _unreachable(source, error) from None
    if split not in splits:
        raise UserError(f"{source}: has no split {split!r}; its splits: {', '.join(splits)}")
    return [str(file) for file in splits[split]]


def _matching(source: str) -> list[str]:
    from huggingface_hub import HfFileSystem

    if _HUB_FILE.fullmatch(source) is None:
        raise UserError(f"{source}: must be hf://datasets/owner/name[@revision]/path")
    if "*" not in source:
        return [source]
    try:
        found = [f"hf://{file}" for file in sorted(HfFileSystem().glob(source))]
    except Exception as error:
        raise _unreachable(source, error) from None
    if not found:
        raise UserError(f"{source}: there is no such file on the hub")
    return found


def _downloaded(file: str) -> Path:
    """Where the hub's cache has the file, which it downloads if need be."""
    from huggingface_hub import hf_hub_download

    parts = _HUB_FILE.fullmatch(file)
    if parts is None:
        raise UserError(f"{file}: must be hf://datasets/owner/name[@revision]/path")
    name, path, revision = parts["name"], parts["path"], parts["revision"]
    try:
        return Path(
            hf_hub_download(
                name, path, repo_type="dataset", revision=revision and unquote(revision)
            )
        )
    except Exception as error:
        raise _unreachable(file, error) from None


def _unreachable(source: str, error: Exception) -> UserError:
    return UserError(
        f"{source}: cannot be read: {first_line(error)}. Without the hub, give local files "
        "(--train FILE, --validation FILE)"
    )
