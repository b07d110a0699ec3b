"""Opens what `verl-msgrpo serve` was asked to serve."""

from pathlib import Path

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.backends import Backend, IndexBackend, Ranker
from verl_msgrpo.search.server.index_dir import Manifest, read_manifest
from verl_msgrpo.search.server.passages import PassageStore


def open_index(
    directory: Path,
    backend: str | None = None,
    scorer: str = "auto",
    device: str = "cpu",
    verify_hashes: bool = True,
) -> Backend:
    """Opens an index that `verl-msgrpo index` wrote.

    `backend` is "bm25", "dense" or "hybrid"; None stands for all that the index was built with.
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
        from verl_msgrpo.search.server.backends.dense import DenseRanker

        rankers.append(
            DenseRanker(directory / "dense", settings["dense"], device, manifest.passages)
        )
    if len(rankers) == 1:
        return rankers[0]
    from verl_msgrpo.search.server.backends.hybrid import HybridRanker

    return HybridRanker(rankers, manifest.passages)
