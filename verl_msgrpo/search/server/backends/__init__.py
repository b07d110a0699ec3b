"""What can be asked for passages: the interface, and the backend over passages on disk."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from verl_msgrpo.search.server.passages import PassageStore


class Hit(NamedTuple):
    """One retrieved passage."""

    document: bytes  # UTF-8 JSON of {"id", "contents"}
    score: float  # finite; larger is better


class BackendUnavailable(Exception):  # noqa: N818 - a state, which passes
    """The backend cannot answer now and may later: the server answers 503."""


class BackendBroken(Exception):  # noqa: N818
    """The backend answered nonsense: the server answers 502."""


class Backend(Protocol):
    """Answers batches of queries. `search` is called from several threads at once."""

    name: str
    passages: int | None  # None: unknown (remote)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Returns the best hits of each query, best first, at most `k` (>= 1) each.

        Never raises for what a query contains; an empty list means that nothing was found.
        """
        ...

    def close(self) -> None:
        """Frees files and connections."""
        ...


# (row of the passage, score), best first
Ranking = list[tuple[int, float]]


class Ranker(Protocol):
    """Ranks the passages of an index; `rank` is called from several threads at once."""

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        """Returns at most `k` (>= 1) rows a query, best first."""
        ...


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
