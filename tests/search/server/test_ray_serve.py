"""The application as a Ray Serve deployment: the same answers, backpressure, a clean end."""

import signal

import httpx
import pytest

from tests.search.server.conftest import make_queries, served

pytestmark = pytest.mark.e2e


def test_two_replicas_answer_as_one_server_does(tmp_path, index, rows, server):
    pytest.importorskip("ray.serve", reason="ray[serve] is not installed")
    queries = make_queries(rows, 50)
    body = {"queries": queries, "topk": 3, "return_scores": True}
    options = ("--index", index, "--replicas", 2, "--threads", 1)
    with served(tmp_path, *options) as running:
        assert running.post(**body).json() == server.post(**body).json()
        assert running.post(queries=["a"], topk=0).status_code == 400
        assert running.post(queries=["a"], topk=101).status_code == 422
        assert httpx.get(f"{running.url}/health").json()["passages"] == len(rows)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(timeout=90) == 0
