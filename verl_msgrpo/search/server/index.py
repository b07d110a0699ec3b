"""An index on disk: how it is built, what its manifest promises, and how it is opened.

An index is a directory, built aside and renamed into place: passages, one folder for each backend,
and a manifest with the size and SHA-256 of every file.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from verl_msgrpo import __version__
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.backends import Backend, BackendSettings, Hit, Ranker
from verl_msgrpo.search.server.corpus import (
    OFFSETS_FILE,
    PASSAGES_FILE,
    PassageStore,
    read_passages,
    write_passages,
)

MANIFEST_FILE = "manifest.json"
FORMAT = "verl-msgrpo search index"
FORMAT_VERSION = 1
BACKENDS = ("bm25", "dense", "hybrid")
LANGUAGES = ("english", "none")
_REBUILD = "build it again with `verl-msgrpo index`"
# What each backend's builder notes for its ranker.
_SETTINGS: dict[str, dict[str, type]] = {
    "bm25": {"language": str},
    "dense": {"model": str, "dimension": int, "query_prefix": str, "passage_prefix": str},
}


@dataclass(frozen=True)
class BuildOptions:
    """How passages are to be indexed; `model` and what follows it are for dense and hybrid.

    Raises:
        UserError: there is a model and no use for it, or the other way round.
    """

    backend: str = "bm25"
    language: str = "english"
    model: str | None = None
    """Name or folder of a sentence-transformers model."""
    query_prefix: str | None = None
    passage_prefix: str | None = None
    device: str = "cpu"
    batch_size: int = 64
    """Passages encoded at once."""

    def __post_init__(self) -> None:
        if self.model is None and self.backend != "bm25":
            raise UserError(f"--backend {self.backend} needs --model")
        if self.model is not None and self.backend == "bm25":
            raise UserError("--model is for --backend dense or hybrid")


def build_index(corpus: Sequence[Path], output: Path, options: BuildOptions) -> int:
    """Builds the index `output` and returns how many passages it holds.

    Says on stderr how far it is, and how much memory comes next.

    Raises:
        UserError: a file cannot be read or written, or holds nothing that can be indexed.
    """
    missing = [path for path in corpus if not path.is_file()]
    if missing:
        raise UserError(f"{missing[0]}: no such corpus file")
    with _building(output) as directory:
        size = sum(path.stat().st_size for path in corpus)
        with _progress("reading the corpus", size, "B") as bar:
            count = write_passages(directory, read_passages(corpus, bar.update))
        store = PassageStore(directory)
        try:
            backends = _build_backends(directory, store, options)
        finally:
            store.close()
        _write_manifest(directory, count, backends, [path.name for path in corpus])
    return count


def _build_backends(
    directory: Path, store: PassageStore, options: BuildOptions
) -> dict[str, BackendSettings]:
    backends: dict[str, BackendSettings] = {}
    if options.backend in ("bm25", "hybrid"):
        from verl_msgrpo.search.server.backends import bm25

        # bm25s holds about 50 bytes for each pair of a passage and a word in it; English text has
        # one such pair for every 8 to 12 bytes.
        gib = store.text_bytes / 10 * 50 / 2**30
        print(f"bm25: about {gib:.1f} GiB of memory at the peak", file=sys.stderr)
        (directory / "bm25").mkdir()
        with _progress("bm25", len(store), "passages") as bar:
            backends["bm25"] = bm25.build(directory / "bm25", store, options.language, bar.update)
    if options.model is not None:
        from verl_msgrpo.search.server.backends import dense

        (directory / "dense").mkdir()
        prefixes = dense.prefixes(options.model, options.query_prefix, options.passage_prefix)
        encoder = dense.Encoder(options.model, options.device, prefixes)
        gib = len(store) * encoder.dimension * 4 / 2**30
        print(f"dense: {gib:.1f} GiB on disk, memory-mapped when served", file=sys.stderr)
        with _progress("dense", len(store), "passages") as bar:
            backends["dense"] = dense.build(
                directory / "dense", store, encoder, options.batch_size, bar.update
            )
    return backends


def _progress(what: str, total: int, unit: str) -> tqdm:
    scale = unit == "B"
    # One line every few seconds where nobody watches: a log, not a terminal.
    interval = 0.5 if sys.stderr.isatty() else 10
    return tqdm(total=total, desc=what, unit=unit, unit_scale=scale, mininterval=interval)


@contextmanager
def _building(output: Path) -> Iterator[Path]:
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


@dataclass(frozen=True)
class FileRecord:
    """What one file of the index must look like."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What an index holds: passages, the settings of each backend built for them, its files."""

    passages: int
    backends: dict[str, BackendSettings]
    files: dict[str, FileRecord]
    corpus: list[str]
    built_by: str = f"verl-msgrpo {__version__}"
    format: str = FORMAT
    format_version: int = FORMAT_VERSION


def _write_manifest(
    directory: Path, passages: int, backends: dict[str, BackendSettings], corpus: list[str]
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


def _read_settings(backend: str, fields: object) -> BackendSettings:
    """Takes what the backend needs; raises ValueError, KeyError or TypeError."""
    if backend not in _SETTINGS:
        raise ValueError(f"unknown backend {backend[:40]!r}")
    if not isinstance(fields, dict):
        raise TypeError(f"{backend}: its settings are no object")
    settings: BackendSettings = {}
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


def open_index(
    directory: Path,
    backend: str | None = None,
    scorer: str = "auto",
    device: str = "cpu",
    verify_hashes: bool = True,
) -> Backend:
    """Opens an index that `verl-msgrpo index` wrote.

    `backend` is "bm25", "dense" or "hybrid"; None is all that the index was built with.
    Raises UserError for a damaged index or one built for another backend.
    """
    manifest = read_manifest(directory, verify_hashes)
    held = "hybrid" if len(manifest.backends) > 1 else next(iter(manifest.backends))
    backend = backend or held
    needed = {"bm25", "dense"} if backend == "hybrid" else {backend}
    if not needed <= set(manifest.backends):
        raise UserError(
            f"{directory}: an index for {held}, not for {backend}; "
            f"build one with `verl-msgrpo index --backend {backend}`"
        )
    try:
        store = PassageStore(directory)
    except (OSError, ValueError, IndexError, TypeError, EOFError) as error:
        raise UserError(f"{directory}: unreadable passages: {error}") from None
    try:
        if len(store) != manifest.passages:
            raise UserError(
                f"{directory}: {len(store)} passages, {manifest.passages} in its manifest"
            )
        ranker = _open_ranker(directory, manifest, backend, scorer, device)
    except BaseException:
        store.close()
        raise
    return IndexBackend(backend, ranker, store)


def _open_ranker(
    directory: Path, manifest: Manifest, backend: str, scorer: str, device: str
) -> Ranker:
    rankers: list[Ranker] = []
    settings = manifest.backends
    if backend in ("bm25", "hybrid"):
        try:
            from verl_msgrpo.search.server.backends.bm25 import Bm25Ranker
        except ImportError as error:
            raise UserError(f"BM25 needs `pip install verl-msgrpo[search]`: {error}") from None
        rankers.append(Bm25Ranker(directory / "bm25", settings["bm25"], scorer, manifest.passages))
    if backend in ("dense", "hybrid"):
        from verl_msgrpo.search.server.backends.dense import DenseRanker, HybridRanker

        rankers.append(
            DenseRanker(directory / "dense", settings["dense"], device, manifest.passages)
        )
    return HybridRanker(rankers, manifest.passages) if len(rankers) > 1 else rankers[0]


class IndexBackend:
    """A ranker together with the passages that it ranks."""

    def __init__(self, name: str, ranker: Ranker, store: PassageStore) -> None:
        self.name = name
        self.passages: int | None = len(store)
        self._ranker = ranker
        self._store = store

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        rankings = self._ranker.rank(queries, min(k, len(self._store)))
        return [
            [Hit(self._store.document(row), score) for row, score in ranking]
            for ranking in rankings
        ]

    def close(self) -> None:
        self._store.close()
