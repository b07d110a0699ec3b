"""BM25 over the passages of a made-up world, and the text in which the policy sees the results.

For the demonstrations, which come from many short-lived worlds; training searches the retrieval
server, which finds the same.
"""

import bm25s
import Stemmer

from verl_msgrpo.search.observation import NOTHING_FOUND, ByteMeasure, render

TOP_K = 3
# How `render` writes a passage; the tokenizer has a token for each fixed piece.
PASSAGE = "Doc {rank}(Title: {title}) {text}\n"
OBSERVATION_BYTES = 2048
__all__ = ["NOTHING_FOUND", "PASSAGE", "TOP_K", "Searcher", "observation"]


class Searcher:
    """bm25s over Search-R1 passages (`{"id", "contents": "title\\ntext"}`), held in memory."""

    def __init__(self, passages: list[dict[str, str]]) -> None:
        self.contents = [row["contents"] for row in passages]
        self._index = bm25s.BM25()
        self._index.index(self._tokens(self.contents), show_progress=False)

    @staticmethod
    def _tokens(texts: list[str]) -> list[list[str]]:
        stemmer = Stemmer.Stemmer("english")
        return bm25s.tokenize(
            texts, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False
        )

    def search(self, queries: list[str], top_k: int = TOP_K) -> list[list[str]]:
        """For each query the contents of its best passages, best first.

        A passage that shares no word with the query is left out, so a list may be short or empty.
        """
        if not queries:
            return []
        k = min(top_k, len(self.contents))
        rows, scores = self._index.retrieve(self._tokens(queries), k=k, show_progress=False)
        return [
            [self.contents[i] for i, score in zip(ids, row, strict=True) if score > 0]
            for ids, row in zip(rows, scores, strict=True)
        ]


def observation(results: list[str]) -> str:
    """The text that the search tool sends for one query's passages."""
    return render([results], OBSERVATION_BYTES, ByteMeasure())
