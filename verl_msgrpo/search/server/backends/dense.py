"""Dense retrieval, alone and merged with other rankers (hybrid).

sentence-transformers encodes, faiss compares with every passage. The vectors are one memory-mapped
float32 matrix, searched exactly (`faiss.knn`), so that serving needs no second copy of them in
memory and no GPU. Rankings are merged by reciprocal rank fusion (Cormack, Clarke, Buettcher, SIGIR
2009).
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.backends import BackendSettings, Ranker, Ranking
from verl_msgrpo.search.server.corpus import PassageStore

VECTORS_FILE = "vectors.npy"
_FUSION_CONSTANT = 60  # the paper's
_FUSION_DEPTH = 100  # ranks of each ranker that count
_INSTALL = "needs `pip install verl-msgrpo[search-dense]`"


class Prefixes(NamedTuple):
    """What the model wants before a query and before a passage."""

    query: str
    passage: str


def prefixes(model: str, query: str | None, passage: str | None) -> Prefixes:
    """Fills in what was not given: E5 models were trained with prefixes, others get none."""
    e5 = "e5" in Path(model).name.lower()
    return Prefixes(
        ("query: " if e5 else "") if query is None else query,
        ("passage: " if e5 else "") if passage is None else passage,
    )


class Encoder:
    """Turns texts into unit vectors; safe to use from several threads."""

    def __init__(self, model: str, device: str, prefixes: Prefixes) -> None:
        """`model`: a name on the hub or a local directory. Raises UserError if it cannot load."""
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise UserError(f"dense retrieval {_INSTALL}: {error}") from None
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise UserError(f"--device {device}: torch finds no GPU here; use --device cpu")
        try:
            self._model = SentenceTransformer(model, device=device)
        except Exception as error:  # a hub, torch or file error of many kinds
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise UserError(f"model {model} on {device} cannot be loaded: {reason[0]}") from None
        self.model = model
        self.prefixes = prefixes
        self._lock = threading.Lock()  # tokenizers are not safe to share
        self.dimension = self.encode(["any text"], "").shape[1]

    def encode(self, texts: Sequence[str], prefix: str, batch_size: int = 64) -> np.ndarray:
        """Returns unit vectors, float32 of shape (len(texts), dimension)."""
        with self._lock:
            vectors = self._model.encode(
                [prefix + text for text in texts],
                batch_size=batch_size,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return np.ascontiguousarray(vectors, dtype=np.float32)


def build(
    directory: Path,
    store: PassageStore,
    encoder: Encoder,
    batch_size: int,
    advance: Callable[[int], object],
) -> BackendSettings:
    """Encodes all passages into `directory`, calling `advance` with the number just encoded."""
    vectors = np.lib.format.open_memmap(
        directory / VECTORS_FILE, "w+", np.float32, (len(store), encoder.dimension)
    )
    row = 0
    # Longer runs than one batch, within which sentence-transformers sorts by length.
    for texts in _runs(store.contents(), 16 * batch_size):
        vectors[row : row + len(texts)] = encoder.encode(
            texts, encoder.prefixes.passage, batch_size
        )
        row += len(texts)
        advance(len(texts))
    vectors.flush()
    return {
        "model": encoder.model,
        "dimension": encoder.dimension,
        "query_prefix": encoder.prefixes.query,
        "passage_prefix": encoder.prefixes.passage,
    }


class DenseRanker:
    """Ranks with vectors that `build` wrote; the score is the cosine."""

    def __init__(
        self, directory: Path, settings: BackendSettings, device: str, passages: int
    ) -> None:
        try:
            import faiss
        except ImportError as error:
            raise UserError(f"dense retrieval {_INSTALL}: {error}") from None
        self._faiss = faiss
        path = directory / VECTORS_FILE
        try:
            # A plain array over the mapped pages: faiss takes no subclass.
            self._vectors = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{path}: unreadable: {error}") from None
        if self._vectors.dtype != np.float32 or self._vectors.shape[:1] != (passages,):
            raise UserError(f"{path}: not float32 vectors of {passages} passages")
        names = Prefixes(str(settings["query_prefix"]), str(settings["passage_prefix"]))
        self._encoder = Encoder(str(settings["model"]), device, names)
        if self._vectors.shape != (passages, self._encoder.dimension):
            raise UserError(
                f"{path}: vectors of shape {self._vectors.shape}, but {settings['model']} gives "
                f"{self._encoder.dimension} dimensions; build the index again with this model"
            )

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        asked = [query for query in queries if query.strip()]
        if not asked:
            return [[] for _ in queries]
        vectors = self._encoder.encode(asked, self._encoder.prefixes.query)
        scores, rows = self._faiss.knn(
            vectors, self._vectors, k, metric=self._faiss.METRIC_INNER_PRODUCT
        )
        found = iter(zip(rows.tolist(), scores.tolist(), strict=True))
        return [_ranking(*next(found)) if query.strip() else [] for query in queries]


def _ranking(rows: list[int], scores: list[float]) -> Ranking:
    return [(row, score) for row, score in zip(rows, scores, strict=True) if row >= 0]


def _runs(texts: Iterator[str], size: int) -> Iterator[list[str]]:
    while run := list(islice(texts, size)):
        yield run


def fuse(rankings: Sequence[Ranking], k: int) -> Ranking:
    """Sums 1 / (60 + rank) over the rankings, rank counted from 1; ties go to the lower row."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, 1):
            scores[row] += 1 / (_FUSION_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]


class HybridRanker:
    """Fuses what its rankers find; the score is the fused one, below 2 / 61 for two rankers."""

    def __init__(self, rankers: Sequence[Ranker], passages: int) -> None:
        self._rankers = rankers
        self._passages = passages

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        depth = min(max(k, _FUSION_DEPTH), self._passages)
        found = [ranker.rank(queries, depth) for ranker in self._rankers]
        return [fuse(rankings, k) for rankings in zip(*found, strict=True)]
