"""Real servers on loopback: protocol, load, faults, shutdown; the same on Ray Serve."""

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

import httpx
import psutil
import pytest

from tests.search.server.conftest import build_index, command, make_queries, served
from tests.search.waiting import LIMIT_S, until
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server import endpoint
from verl_msgrpo.search.server.index import open_index
from verl_msgrpo.search.server.options import ServeOptions

GOLDEN_ROWS = [
    {"id": "0", "contents": '"Dune"\nDune is a novel by Frank Herbert.'},
    {"id": "1", "contents": '"Mars"\nMars is a planet.'},
]


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    directory = tmp_path_factory.mktemp("golden")
    with served(directory, "--index", build_index(directory, GOLDEN_ROWS)) as running:
        yield running


def test_golden_answer_without_scores(golden):
    response = golden.post(queries=["Frank Herbert", "planet Mars"], topk=1)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"result": [[GOLDEN_ROWS[0]], [GOLDEN_ROWS[1]]]}


def test_golden_answer_with_scores(golden):
    response = golden.post(queries=["Frank Herbert"], topk=1, return_scores=True)
    # Lucene's BM25, k1 = 1.5, b = 0.75. Both words: one of two passages, so idf = ln 2, tf = 1.
    # Lengths without stop words: (dune dune novel frank herbert) = 5 and (mars mars planet) = 3.
    idf = 0.6931471805599453
    each = idf * 1 / (1 + 1.5 * (1 - 0.75 + 0.75 * 5 / 4))
    ((hit,),) = response.json()["result"]
    assert set(hit) == {"document", "score"}
    assert hit["document"] == GOLDEN_ROWS[0]
    assert hit["score"] == pytest.approx(2 * each, rel=1e-5)


def test_top_k_is_optional_and_never_above_the_corpus(golden):
    assert len(golden.post(queries=["novel"]).json()["result"][0]) == 2  # default 3, two passages
    assert len(golden.post(queries=["novel"], topk=3).json()["result"][0]) == 2
    for k in (0, -1):
        response = golden.post(queries=["novel"], topk=k)
        assert response.status_code == 400
        assert "at least 1" in response.json()["detail"]


def test_requests_beyond_a_limit_get_422_and_a_reason(golden):
    for fields in (
        {"queries": ["a"], "topk": 101},
        {"queries": ["a"] * 4097},
        {"queries": ["a" * 10_001]},
        {"queries": "one string"},
        {},
    ):
        response = golden.post(**fields)
        assert response.status_code == 422
        assert isinstance(response.json()["detail"], str)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_beyond_the_limit_gets_422_declared_or_not(golden, declared):
    head = b"POST /retrieve HTTP/1.1\r\nHost: x\r\n"
    mebibyte = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    with golden.connect() as connection, connection.makefile("rb") as answer:
        if declared:  # and not even sent
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % ((8 << 20) + 1))
        else:  # one byte too many, and no end
            chunks = 8 * mebibyte + b"1\r\n \r\n"
            connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        assert answer.readline().startswith(b"HTTP/1.1 422 ")
        while answer.readline() != b"\r\n":
            pass
        assert answer.read(18) == b'{"detail":"the bod'
    assert golden.post(queries=["novel"]).status_code == 200


HOSTILE = [
    "",
    " \t\n",
    "\x00\x01",
    "🦀" * 2000,
    "ﷺ" * 3000,
    "a\u0300" * 3000,
    "İ" * 5000,
    "novel " * 1600,
    "*?[](){}\\|^$",
    "<search>novel</search>",
    "'; DROP TABLE passages; --",
]


def test_hostile_queries_are_answered(golden):
    response = golden.post(queries=HOSTILE)
    assert response.status_code == 200
    assert len(response.json()["result"]) == len(HOSTILE)
    surrogate = golden.post_bytes(b'{"queries": ["\\udfff novel"]}')
    assert len(surrogate.json()["result"][0]) == 2


def test_broken_http_does_not_stop_the_server(golden):
    for sent in (b"\x00\xff\r\n\r\n", b"POST /retrieve HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"):
        with golden.connect() as connection:
            connection.sendall(sent)
    assert golden.post(queries=["novel"]).status_code == 200


@pytest.fixture(scope="module")
def tight(tmp_path_factory, index):
    directory = tmp_path_factory.mktemp("tight")
    options = ("--max-connections", 20, "--max-answer-bytes", 4000)
    with served(directory, "--index", index, *options) as running:
        running.log = directory / "server.log"
        yield running


def test_a_client_that_leaves_within_its_body_is_counted_without_a_word(tight):
    head = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{"
    said_before = tight.log.read_text()
    with tight.connect() as connection:
        connection.sendall(head)
    until(lambda: 'retrieval_requests_total{status="499"} 1.0' in tight.get("/metrics").text)
    assert tight.log.read_text() == said_before


def test_answers_beyond_the_limits_get_422(tight, rows):
    queries = make_queries(rows, 50)
    assert tight.post(queries=queries[:1]).status_code == 200
    response = tight.post(queries=queries, topk=20)
    assert response.status_code == 422
    assert "answer is larger" in response.json()["detail"]
    response = tight.post(queries=["a"] * 201, topk=100)
    assert response.status_code == 422
    assert "20000 results" in response.json()["detail"]


def test_connections_beyond_the_limit_get_503(tight):
    with contextlib.ExitStack() as stack:

        def one_more_is_taken():
            connection = tight.connect()
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            with connection.makefile("rb") as answer:
                taken = answer.readline() == b"HTTP/1.1 200 OK\r\n"
            if taken:
                stack.enter_context(connection)
            else:
                connection.close()
            return taken

        for _ in range(20):  # earlier tests' connections may be seen to have closed only now
            until(one_more_is_taken)
        assert tight.get("/health").status_code == 503
    until(lambda: tight.post(queries=["a"]).status_code == 200)  # once the others have closed


def test_endless_headers_are_cut_off(golden):
    with golden.connect() as connection:
        connection.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\n")
        field = b"x: " + b"a" * 1021 + b"\r\n"
        with pytest.raises(ConnectionError):
            connection.sendall(field * (32 << 10))  # 32 MiB
    assert golden.post(queries=["novel"]).status_code == 200


def test_a_long_body_is_no_long_head(golden):
    """Bodies of more than the head's bound, on one connection, one after the other."""
    body = {"queries": ["novel " + "x" * 2000] * 60}
    with httpx.Client(timeout=LIMIT_S) as client:
        for _ in range(5):
            assert client.post(f"{golden.url}/retrieve", json=body).status_code == 200


@pytest.mark.parametrize("name", ["none/port", "", "/proc/port"])
def test_a_port_file_that_cannot_be_written_is_refused_before_the_load(tmp_path, name):
    options = ServeOptions(index=tmp_path / "missing", port_file=tmp_path / name)
    with pytest.raises(UserError, match="--port-file") as caught:
        endpoint.serve(options)
    assert "\n" not in str(caught.value)


def test_a_port_file_whose_folder_went_away_during_the_load_ends_in_one_line(tmp_path):
    index = build_index(tmp_path, GOLDEN_ROWS)
    words = ["serve", "--index", index, "--port", 0, "--port-file", tmp_path / "none" / "port"]
    code = f"""
import sys
from verl_msgrpo import cli
from verl_msgrpo.search.server import endpoint
endpoint._check_writable = lambda port_file: None  # the folder goes away after the check
sys.exit(cli.main({[str(word) for word in words]!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--port-file" in line


def test_health_metrics_and_documentation(golden):
    golden.post(queries=["novel", "xyzzy"])
    health = golden.get("/health").json()
    assert health == {"status": "ok", "backend": "bm25", "passages": 2, "topk": 3}
    assert golden.metric('retrieval_requests_total{status="200"}') >= 1
    assert golden.metric("retrieval_empty_results_total") >= 1
    assert golden.metric("retrieval_batch_queries_count") >= 1
    documented = golden.get("/openapi.json").json()["paths"]["/retrieve"]["post"]
    assert set(documented["responses"]) >= {"200", "400", "422", "503"}
    fields = documented["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert set(fields) == {"queries", "topk", "return_scores"}
    assert golden.get("/docs").status_code == 200
    assert golden.get("/retrieve").status_code == 405


def test_two_hundred_parallel_posts_get_two_hundred_good_answers(server, index, rows):
    queries = make_queries(rows, 200)
    backend = open_index(index)
    expected = [[json.loads(hit.document) for hit in hits] for hits in backend.search(queries, 3)]
    backend.close()
    # Without an expiry: httpx may close an expired connection that a thread was just given.
    limits = httpx.Limits(max_connections=200, keepalive_expiry=None)
    with httpx.Client(limits=limits, timeout=LIMIT_S) as client:

        def post(query):
            return client.post(f"{server.url}/retrieve", json={"queries": [query], "topk": 3})

        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            responses = list(pool.map(post, queries))
            resident = psutil.Process(server.process.pid).memory_info().rss
            for _ in range(5):  # what a round leaves behind would add up
                list(pool.map(post, queries))
            grown = psutil.Process(server.process.pid).memory_info().rss - resident
    assert grown < 64 << 20
    assert [response.status_code for response in responses] == [200] * 200
    assert [response.json()["result"][0] for response in responses] == expected
    assert server.metric("retrieval_waiting_queries") == 0


def test_overload_gets_503_with_retry_after_and_passes(tmp_path, upstream):
    upstream.open.clear()
    # The server's own deadline begins while the upstream holds the first request.
    options = ("--threads", 1, "--max-batch", 1, "--max-waiting", 2, "--timeout", 10 * LIMIT_S)
    with (
        served(tmp_path, "--remote", upstream.url, *options) as running,
        concurrent.futures.ThreadPoolExecutor(3) as pool,
    ):
        first = pool.submit(running.post, queries=["1"])
        assert upstream.arrived.acquire(timeout=LIMIT_S)  # the only thread is busy
        waiting = [pool.submit(running.post, queries=[name]) for name in "23"]
        until(lambda: running.metric("retrieval_waiting_queries") == 2)
        for _ in range(5):
            response = running.post(queries=["4"])
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert "waiting" in response.json()["detail"]
        assert running.get("/health").status_code == 200
        upstream.open.set()
        assert [f.result().status_code for f in (first, *waiting)] == [200] * 3
        assert running.post(queries=["4"]).status_code == 200


def test_a_slow_backend_gets_503_within_the_deadline(tmp_path, upstream):
    upstream.open.clear()
    with served(tmp_path, "--remote", upstream.url, "--timeout", 0.5) as running:
        response = running.post(queries=["1"])
        assert response.status_code == 503
        assert "retry-after" in response.headers
        upstream.open.set()
        until(lambda: running.post(queries=["1"]).status_code == 200)  # each has half a second


def test_a_remote_is_passed_through_and_its_rubbish_kept_out(tmp_path, upstream):
    with served(tmp_path, "--remote", upstream.url) as running:
        document = {"id": "u1", "contents": "Title\ntext"}
        scored = running.post(queries=["a", "b"], topk=2, return_scores=True).json()
        assert scored == {"result": [[{"document": document, "score": 1.5}] * 2] * 2}
        assert running.post(queries=["a"], topk=1).json() == {"result": [[document]]}
        for rubbish in (
            b"<html>",
            b"{}",
            b'{"result": []}',
            b'{"result": [null]}',
            b'{"result": [[{"document": {"contents": 3}, "score": 1}]]}',
            b'{"result": [[{"document": {"contents": "x"}, "score": NaN}]]}',
            b"[" * 100_000,
        ):
            upstream.spoilt = rubbish
            response = running.post(queries=["a"])
            assert response.status_code == 502
            assert "protocol" in response.json()["detail"] or "results" in response.json()["detail"]
        upstream.spoilt, upstream.status = b"", 500
        assert running.post(queries=["a"]).status_code == 503
        upstream.stop()
        response = running.post(queries=["a"])
        assert response.status_code == 503
        assert "retry-after" in response.headers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_answers_what_is_in_flight(tmp_path, upstream, number):
    upstream.open.clear()
    with (
        served(tmp_path, "--remote", upstream.url, "--timeout", 10 * LIMIT_S) as running,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        pending = pool.submit(running.post, queries=["1"])
        assert upstream.arrived.acquire(timeout=LIMIT_S)
        running.process.send_signal(number)

        def takes_no_more():
            try:
                running.connect().close()
            except OSError:
                return True
            return False

        until(takes_no_more)
        upstream.open.set()
        assert pending.result().status_code == 200
        assert running.wait() == 0
    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log


def test_a_recorded_run_is_replayed_without_the_corpus(tmp_path, index, rows):
    recorded = tmp_path / "recorded.jsonl"
    queries = [*make_queries(rows, 40), "", "xyzzy"]
    body = {"queries": queries, "topk": 4, "return_scores": True}
    with served(tmp_path, "--index", index, "--record", recorded) as running:
        expected = running.post(**body).json()
        running.post(queries=queries[:3])  # the default top-k
    with served(tmp_path, "--replay", recorded) as running:
        assert running.post(**body).json() == expected
        assert running.metric("retrieval_replay_misses_total") == 0
        assert len(running.post(queries=queries[:1]).json()["result"][0]) == 3
        unknown = running.post(queries=["never asked"])
        assert (unknown.status_code, unknown.json()) == (200, {"result": [[]]})
        assert running.metric("retrieval_replay_misses_total") == 1


def test_the_ready_line_names_address_backend_and_size(tmp_path, index):
    with served(tmp_path, "--index", index) as running:
        line = running.process.stdout.readline()
        assert line == f"ready: http://127.0.0.1:{running.port}/retrieve (bm25, 300 passages)\n"
        running.process.send_signal(signal.SIGTERM)
        assert running.process.stdout.read() == ""
        assert running.wait() == 0


def test_a_signal_before_the_server_listens_for_it_stops_it(index):
    script = (
        "import os, signal, sys, uvicorn\n"
        "run = uvicorn.Server.run\n"
        "def interrupted(self, **options):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    run(self, **options)\n"
        "uvicorn.Server.run = interrupted\n"
        "from verl_msgrpo.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = [sys.executable, "-c", script, "serve", "--port", "0", "--index", str(index)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def refused(*words):
    done = subprocess.run(command("serve", *words), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return done.stderr.strip()


def test_what_cannot_be_served_is_refused_in_one_line(tmp_path, index):
    faiss_file = tmp_path / "e5_Flat.index"
    faiss_file.write_bytes(os.urandom(100))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, reason in [
            (("--index", faiss_file), "FAISS"),
            (("--index", index, "--backend", "dense"), "not for dense"),
            (("--index", tmp_path / "none"), "no such index"),
            (("--index", index, "--port", port), "cannot listen"),
            (("--index", index, "--topk", 200), "--max-topk"),
            (("--remote", "localhost:80/x"), "--remote: allowed is a URL like http"),
        ]:
            message = refused("--port", 0, *words) if "--port" not in words else refused(*words)
            assert reason in message
            assert "\n" not in message


@pytest.mark.e2e
def test_two_replicas_answer_as_one_server_does(tmp_path, index, rows, server):
    pytest.importorskip("ray.serve", reason="ray[serve] is not installed")
    queries = make_queries(rows, 50)
    body = {"queries": queries, "topk": 3, "return_scores": True}
    options = ("--index", index, "--replicas", 2, "--threads", 1)
    with served(tmp_path, *options) as running:
        assert running.post(**body).json() == server.post(**body).json()
        assert running.post(queries=["a"], topk=0).status_code == 400
        assert running.post(queries=["a"], topk=101).status_code == 422
        assert running.get("/health").json()["passages"] == len(rows)
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0
