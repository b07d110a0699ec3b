"""Several rankers at once, by reciprocal rank fusion (Cormack, Clarke, Buettcher, SIGIR 2009)."""

from collections import defaultdict
from collections.abc import Sequence

from verl_msgrpo.search.server.backends import Ranker, Ranking

_K = 60  # the paper's constant
_DEPTH = 100  # ranks of each ranker that count


def fuse(rankings: Sequence[Ranking], k: int) -> Ranking:
    """Sums 1 / (60 + rank) over the rankings, rank counted from 1; ties go to the lower row."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, 1):
            scores[row] += 1 / (_K + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]


class HybridRanker:
    """Fuses what its rankers find; the score is the fused one, below 2 / 61 for two rankers."""

    def __init__(self, rankers: Sequence[Ranker], passages: int) -> None:
        self._rankers = rankers
        self._passages = passages

    def rank(self, queries: Sequence[str], k: int) -> list[Ranking]:
        depth = min(max(k, _DEPTH), self._passages)
        found = [ranker.rank(queries, depth) for ranker in self._rankers]
        return [fuse(rankings, k) for rankings in zip(*found, strict=True)]
