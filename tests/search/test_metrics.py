"""What verl's log shows of the searches of a step."""

import subprocess
import sys

import numpy as np
import pytest

from verl_msgrpo.search.metrics import SearchResult, count_searches, counts_of, search_metrics


def test_counts_of_one_rollout():
    fields = {"min_global_steps": 1}
    count_searches(
        counts_of(fields),
        ["Dune", "x"],
        [SearchResult(("p",), seconds=0.1), SearchResult(error="down", seconds=0.2)],
    )
    count_searches(counts_of(fields), ["dUne  "], [SearchResult((), cached=True, seconds=0.0)])
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


def test_no_search_at_all_shows_as_zero_and_other_loops_show_nothing():
    row = {}
    counts_of(row)
    assert search_metrics([row])["search/per_rollout/mean"] == 0.0
    assert search_metrics([{}, {"min_global_steps": 1}]) == {}


def in_a_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_metrics_need_nothing_of_the_extra_search():
    in_a_process(
        "import sys\n"
        "for name in ('aiohttp', 'bm25s', 'fastapi', 'httpx', 'uvicorn'):\n"
        "    sys.modules[name] = None\n"  # `import name` raises ImportError
        "import verl_msgrpo.search.metrics, verl_msgrpo.search.settings"
    )


def test_the_trainer_leaves_the_client_alone():
    """verl's trainer may import aiohttp itself: what counts is that ours adds no import of it."""
    pytest.importorskip("verl.trainer.ppo.v1.trainer_base")
    in_a_process(
        "import sys\n"
        "sys.modules['verl_msgrpo.search.client'] = None\n"
        "import verl.trainer.ppo.v1.trainer_base\n"
        "import verl_msgrpo.verl_plugin.trainer\n"
    )
