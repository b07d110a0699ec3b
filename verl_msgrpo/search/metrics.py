"""What the searches of a rollout came to: counted per rollout, summed up per training step.

A rollout's counts are a plain dict under `COUNTS` in its `extra_fields`, which verl carries to the
trainer (`search_metrics`) and, as `extra_info`, to the reward function. The trainer imports this
module in every run: it needs nothing of the extra `search`.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

import numpy as np

COUNTS = "search"
ENDED = "search_ended"
# Why a rollout ended; stored under ENDED.
FINISHED, TURN_LIMIT, TRUNCATED, DEADLINE = "finished", "turn_limit", "truncated", "deadline"


@dataclass(frozen=True)
class SearchResult:
    """What one query brought."""

    passages: tuple[str, ...] = ()
    """`contents` of each passage, best first."""
    error: str | None = None
    """Why there is no answer; None where there is one."""
    cached: bool = False
    """No request of its own: remembered, or shared with an equal query on its way."""
    seconds: float = 0.0
    """As the rollout waited for it."""


class SearchCounts(TypedDict):
    """The searches of one rollout. A search is one query of a well-formed call."""

    searches: int
    failed: int
    empty: int
    cached: int
    repeated: int
    malformed: int
    """Calls without a search in them: broken, without a query, or of a tool that does not exist."""
    seconds: list[float]
    queries: list[str]


def counts_of(extra_fields: MutableMapping[str, object]) -> SearchCounts:
    """The counts in a rollout's `extra_fields`, all zero at first."""
    fresh: SearchCounts = {
        "searches": 0,
        "failed": 0,
        "empty": 0,
        "cached": 0,
        "repeated": 0,
        "malformed": 0,
        "seconds": [],
        "queries": [],
    }
    return cast(SearchCounts, extra_fields.setdefault(COUNTS, fresh))


def count_searches(
    counts: SearchCounts, queries: Sequence[str], results: Sequence[SearchResult]
) -> SearchCounts:
    """Adds the searches of one call; queries and results have equal length."""
    for query, result in zip(queries, results, strict=True):
        key = " ".join(query.casefold().split())
        counts["searches"] += 1
        counts["failed"] += result.error is not None
        counts["empty"] += result.error is None and not result.passages
        counts["cached"] += result.cached
        counts["repeated"] += key in counts["queries"]
        counts["seconds"].append(result.seconds)
        counts["queries"].append(key)
    return counts


def search_metrics(rollouts: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """The metrics of one training step from the `extra_fields` of its rollouts.

    Shares of failed, empty, cached and repeated are of all searches, that of malformed calls is of
    all calls and searches; a share of nothing is 0. A rollout without counts has made no search;
    where no rollout has counts, nothing of ours ran and the result is empty.
    """
    counted = [cast(SearchCounts, row[COUNTS]) for row in rollouts if COUNTS in row]
    if not counted:
        return {}
    searches = [counts["searches"] for counts in counted]
    total = sum(searches)
    malformed = sum(counts["malformed"] for counts in counted)
    metrics = {
        "search/per_rollout/mean": total / len(rollouts),
        "search/per_rollout/max": float(max(searches)),
        "search/malformed_share": malformed / max(total + malformed, 1),
    }
    for name in ("failed", "empty", "cached", "repeated"):
        number = sum(counts[name] for counts in counted)  # type: ignore[literal-required]
        metrics[f"search/{name}_share"] = number / max(total, 1)
    seconds = [value for counts in counted for value in counts["seconds"]]
    for percentile in (50, 95):
        value = float(np.percentile(seconds, percentile)) if seconds else 0.0
        metrics[f"search/latency_p{percentile}_s"] = value
    ended = [row[ENDED] for row in rollouts if ENDED in row]
    for reason in (TURN_LIMIT, TRUNCATED, DEADLINE) if ended else ():
        metrics[f"search/ended/{reason}_share"] = ended.count(reason) / len(ended)
    return metrics
