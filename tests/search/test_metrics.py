"""What verl's log shows of the searches of a step."""

import numpy as np
import pytest

from verl_msgrpo.search.client import Found
from verl_msgrpo.search.metrics import count_searches, counts_of, search_metrics


def test_counts_of_one_rollout():
    fields = {"min_global_steps": 1}
    count_searches(
        counts_of(fields),
        ["Dune", "x"],
        [Found(("p",), seconds=0.1), Found(error="down", seconds=0.2)],
    )
    count_searches(counts_of(fields), ["dUne  "], [Found((), cached=True, seconds=0.0)])
    assert fields == {
        "min_global_steps": 1,
        "search": {
            "searches": 3,
            "failed": 1,
            "empty": 1,
            "cached": 1,
            "repeated": 1,
            "malformed": 0,
            "seconds": [0.1, 0.2, 0.0],
            "queries": ["dune", "x", "dune"],
        },
    }


def test_metrics_of_a_step():
    rows = [{}, {"search_ended": "deadline"}, {"search_ended": "finished"}]
    a, b = counts_of(rows[1]), counts_of(rows[2])
    a.update(searches=3, failed=1, repeated=2, malformed=1, seconds=[0.1, 0.2, 0.3])
    b.update(searches=1, empty=1, cached=1, seconds=[0.6])
    metrics = search_metrics(rows)
    assert metrics == pytest.approx(
        {
            "search/per_rollout/mean": 4 / 3,
            "search/per_rollout/max": 3.0,
            "search/malformed_share": 1 / 5,
            "search/failed_share": 1 / 4,
            "search/empty_share": 1 / 4,
            "search/cached_share": 1 / 4,
            "search/repeated_share": 2 / 4,
            "search/latency_p50_s": 0.25,
            "search/latency_p95_s": 0.555,  # between 0.3 and 0.6, at 0.85 of the way
            "search/ended/turn_limit_share": 0.0,
            "search/ended/truncated_share": 0.0,
            "search/ended/deadline_share": 1 / 2,
        }
    )
    assert all(np.isfinite(value) for value in metrics.values())


def test_t20_no_search_at_all_shows_as_zero_and_other_loops_show_nothing():
    row = {}
    counts_of(row)
    assert search_metrics([row])["search/per_rollout/mean"] == 0.0
    assert search_metrics([{}, {"min_global_steps": 1}]) == {}
