"""What can be asked for passages: the interfaces, and one module for each that keeps them.

bm25.py and dense.py rank the passages of an index, with or without each other; proxy.py passes on
to another server, and records and replays what was answered.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


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


# What a builder of an index notes for its ranker: names to plain values.
BackendSettings = dict[str, str | int]
# (row of the passage, score), best first
Ranking = list[tuple[int, float]]


class Ranker(Protocol):
    """Ranks the passages of an index; `rank` is called from several threads at once."""

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        """Returns at most `k` (>= 1) rows per query, best first."""
        ...
