"""BM25 through bm25s: scores computed at build time, memory-mapped when served."""

import re
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import bm25s
import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.backends import BackendSettings, Ranking
from verl_msgrpo.search.server.corpus import PassageStore

_TOKENS_FILE = "tokens.building"
# bm25s compiles its numba scorer anew in every process, which takes seconds. Below this many
# passages numpy answers in well under a millisecond and the server is up at once.
NUMBA_FROM_PASSAGES = 20_000


class Tokenizer:
    """bm25s's own tokenisation (lower case, words of two letters, stop words out, stemmed).

    `bm25s.tokenize` builds a vocabulary on each call, and `bm25s.tokenization.Tokenizer` keeps
    every word it was ever asked about: a server needs neither. Safe to use from several threads.
    """

    def __init__(self, language: str) -> None:
        """`language`: "english", or "none" for neither stop words nor stemming."""
        self._words = re.compile(r"(?u)\b\w\w+\b").findall
        self._stopwords = frozenset(STOPWORDS_EN if language == "english" else ())
        self._language = language if language == "english" else None
        self._local = threading.local()  # a PyStemmer object belongs to one thread

    def __call__(self, text: str) -> list[str]:
        words = [word for word in self._words(text.lower()) if word not in self._stopwords]
        return words if self._language is None else self._stemmer().stemWords(words)

    def _stemmer(self) -> Stemmer.Stemmer:
        stemmer = getattr(self._local, "stemmer", None)
        if stemmer is None:
            # Without PyStemmer's own cache, whose upkeep costs more than stemming.
            stemmer = self._local.stemmer = Stemmer.Stemmer(self._language, 0)
        return stemmer


class _TokenLists(Sequence[list[int]]):
    """Token ids of every passage, kept on disk while bm25s walks over them."""

    def __init__(self, path: Path, ends: Sequence[int]) -> None:
        self._ids = np.memmap(path, dtype=np.int32, mode="r")
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> list[int]:  # type: ignore[override]
        return self._ids[self._ends[row] : self._ends[row + 1]].tolist()

    def __iter__(self) -> Iterator[list[int]]:
        return (self[row] for row in range(len(self)))


class _Tokenized(NamedTuple):
    """The shape in which bm25s takes a corpus of token ids."""

    ids: _TokenLists
    vocab: dict[str, int]


def build(
    directory: Path, store: PassageStore, language: str, advance: Callable[[int], object]
) -> BackendSettings:
    """Builds the index of all passages in `directory`, calling `advance(1)` after each."""
    tokenize = Tokenizer(language)
    vocabulary: dict[str, int] = {}
    ends = array("q", [0])
    tokens_path = directory / _TOKENS_FILE
    with tokens_path.open("wb", buffering=1 << 20) as file:
        for contents in store.contents():
            ids = array(
                "i", [vocabulary.setdefault(t, len(vocabulary)) for t in tokenize(contents)]
            )
            ids.tofile(file)
            ends.append(ends[-1] + len(ids))
            advance(1)
    if not vocabulary:
        raise UserError("the corpus holds no word that could be searched for")
    index = bm25s.BM25()
    index.index(_Tokenized(_TokenLists(tokens_path, ends), vocabulary), show_progress=False)
    index.save(directory, show_progress=False)
    tokens_path.unlink()
    return {"language": language}


class Bm25Ranker:
    """Ranks with an index that `build` wrote.

    A query of which the index knows no word has no hits. Any other gets exactly what
    `bm25s.BM25.retrieve` returns, which on a tiny corpus can include passages of score 0.
    """

    def __init__(
        self, directory: Path, settings: BackendSettings, scorer: str, passages: int
    ) -> None:
        """`scorer`: "numpy", "numba", or "auto" (numba for large corpora, where installed)."""
        if scorer == "auto":
            large = passages >= NUMBA_FROM_PASSAGES
            scorer = "numba" if large and find_spec("numba") else "numpy"
        elif scorer == "numba" and not find_spec("numba"):
            raise UserError("--scorer numba needs numba (pip install numba)")
        self.scorer = scorer
        self._tokenize = Tokenizer(str(settings["language"]))
        try:
            self._index = bm25s.BM25.load(directory, mmap=True, backend=scorer, auto_compile=False)
            # Plain arrays over the same mapped pages: numba compiles for these.
            for name in ("data", "indices", "indptr"):
                self._index.scores[name] = np.asarray(self._index.scores[name])
            _check(self._index.scores, passages)
        except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError) as error:
            raise UserError(f"{directory}: not a readable bm25s index: {error}") from None
        self._vocabulary: dict[str, int] = self._index.vocab_dict
        word = next(iter(self._vocabulary))
        self._retrieve([[self._vocabulary[word]]], 1)  # compiles now, not at the first request

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        known = self._vocabulary
        tokens = [[known[t] for t in self._tokenize(query) if t in known] for query in queries]
        asked = [ids for ids in tokens if ids]
        found = iter(self._retrieve(asked, k) if asked else ())
        return [next(found) if ids else [] for ids in tokens]

    def _retrieve(self, token_ids: list[list[int]], k: int) -> list[Ranking]:
        # Serial: bm25s's parallel numba kernel must not run in two threads at once, the serial one
        # frees the interpreter lock and may.
        rows, scores = self._index.retrieve(token_ids, k=k, show_progress=False, n_threads=0)
        return [
            list(zip(r, s, strict=True))
            for r, s in zip(rows.tolist(), scores.tolist(), strict=True)
        ]


def _check(scores: dict[str, np.ndarray], passages: int) -> None:
    """Raises ValueError where the arrays do not fit together: numba would read past their end."""
    data, indices, indptr = scores["data"], scores["indices"], scores["indptr"]
    if scores["num_docs"] != passages:
        raise ValueError(f"made for {scores['num_docs']} passages, the corpus has {passages}")
    if len(data) != len(indices) or int(indptr[-1]) != len(data) or np.any(np.diff(indptr) < 0):
        raise ValueError("its arrays do not fit together")
