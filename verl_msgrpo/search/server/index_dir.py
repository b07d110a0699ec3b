"""An index on disk: a directory with a manifest, built aside and renamed into place."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from verl_msgrpo import __version__
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.passages import OFFSETS_FILE, PASSAGES_FILE

MANIFEST_FILE = "manifest.json"
FORMAT = "verl-msgrpo search index"
FORMAT_VERSION = 1
_REBUILD = "build it again with `verl-msgrpo index`"

# Settings of one backend, as its builder wrote them: names to plain values.
Settings = dict[str, str | int]
_SETTINGS: dict[str, dict[str, type]] = {
    "bm25": {"language": str},
    "dense": {"model": str, "dimension": int, "query_prefix": str, "passage_prefix": str},
}
LANGUAGES = ("english", "none")


@dataclass(frozen=True)
class FileRecord:
    """What one file of the index must look like."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What an index holds: passages, the settings of each backend built for them, its files."""

    passages: int
    backends: dict[str, Settings]
    files: dict[str, FileRecord]
    corpus: list[str]
    built_by: str = f"verl-msgrpo {__version__}"
    format: str = FORMAT
    format_version: int = FORMAT_VERSION


@contextmanager
def building(output: Path) -> Iterator[Path]:
    """Gives a new directory beside `output`, which becomes `output` when the block succeeds.

    A build that fails removes it. One that is killed leaves a hidden directory without a manifest,
    which nothing loads.
    """
    if output.exists() or output.is_symlink():
        raise UserError(f"{output}: exists already; remove it or choose another --output")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{output.name}.building-", dir=output.parent))
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error}") from None
    try:
        scratch.chmod(0o755)  # mkdtemp's 0700 would hide the index from other users
        yield scratch
        _sync_tree(scratch)
        scratch.rename(output)
        _sync(output.parent)
    except OSError as error:
        raise UserError(f"{output}: the build failed: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_manifest(
    directory: Path, passages: int, backends: dict[str, Settings], corpus: list[str]
) -> None:
    """Describes every file below `directory`; the last step of a build."""
    files = {
        str(path.relative_to(directory)): FileRecord(path.stat().st_size, _sha256(path))
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    manifest = Manifest(passages=passages, backends=backends, files=files, corpus=corpus)
    text = json.dumps(asdict(manifest), indent=1)
    (directory / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")


def read_manifest(directory: Path, verify_hashes: bool = True) -> Manifest:
    """Reads the manifest and checks every file against it: size always, content on demand.

    Raises UserError, in one line, for anything that `verl-msgrpo index` did not write or that has
    changed since.
    """
    if not directory.exists():
        raise UserError(f"{directory}: no such index; build one with `verl-msgrpo index`")
    if directory.is_file():
        kind = " (a FAISS index?)" if directory.suffix in (".index", ".faiss") else ""
        raise UserError(
            f"{directory}: a file{kind}; --index takes a directory made by `verl-msgrpo index`"
        )
    path = directory / MANIFEST_FILE
    if not path.is_file():
        raise UserError(
            f"{directory}: no {MANIFEST_FILE}: not an index made by `verl-msgrpo index`, "
            "or an unfinished one"
        )
    manifest = _parse_manifest(path)
    for name, record in manifest.files.items():
        file = directory / name
        if not file.is_file():
            raise UserError(f"{file}: missing from the index; {_REBUILD}")
        size = file.stat().st_size
        if size != record.bytes:
            raise UserError(f"{file}: {size} bytes instead of {record.bytes}; {_REBUILD}")
        if verify_hashes and _sha256(file) != record.sha256:
            raise UserError(f"{file}: damaged, its SHA-256 is not the manifest's; {_REBUILD}")
    return manifest


def _parse_manifest(path: Path) -> Manifest:
    try:
        fields = json.loads(path.read_bytes())
        if fields["format"] != FORMAT:
            raise UserError(f"{path}: not the manifest of a verl-msgrpo search index")
        if fields["format_version"] != FORMAT_VERSION:
            raise UserError(
                f"{path}: index format {fields['format_version']}, this verl-msgrpo reads "
                f"{FORMAT_VERSION}; {_REBUILD}"
            )
        files = {
            str(name): FileRecord(int(record["bytes"]), str(record["sha256"]))
            for name, record in fields["files"].items()
        }
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
            raise ValueError("a file outside of the index")
        backends = {
            str(name): _read_settings(name, settings)
            for name, settings in fields["backends"].items()
        }
        _check_listed(files, backends)
        manifest = Manifest(
            passages=int(fields["passages"]),
            backends=backends,
            files=files,
            corpus=[str(source) for source in fields["corpus"]],
            built_by=str(fields["built_by"]),
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        raise UserError(f"{path}: damaged ({reason}); {_REBUILD}") from None
    if manifest.passages < 1 or not manifest.backends:
        raise UserError(f"{path}: describes an empty index; {_REBUILD}")
    return manifest


def _read_settings(backend: str, fields: object) -> Settings:
    """Takes what the backend needs; raises ValueError, KeyError or TypeError."""
    if backend not in _SETTINGS:
        raise ValueError(f"unknown backend {backend[:40]!r}")
    if not isinstance(fields, dict):
        raise TypeError(f"{backend}: its settings are no object")
    settings: Settings = {}
    for name, kind in _SETTINGS[backend].items():
        value = fields[name]
        if not isinstance(value, str | int) or not isinstance(value, kind):
            raise TypeError(f"{backend}: {name} is not of type {kind.__name__}")
        settings[name] = value
    if backend == "bm25" and settings["language"] not in LANGUAGES:
        raise ValueError(f"unknown language {str(settings['language'])[:40]!r}")
    return settings


def _check_listed(files: Iterable[str], backends: Iterable[str]) -> None:
    """Raises ValueError where files that will be opened are not among those to be checked."""
    folders = {name.partition("/")[0] for name in files}
    missing = sorted({PASSAGES_FILE, OFFSETS_FILE, *backends} - folders)
    if missing:
        raise ValueError(f"lists no {missing[0]}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_tree(directory: Path) -> None:
    for path in directory.rglob("*"):
        _sync(path)
    _sync(directory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
