"""A small server that speaks Sandbox Fusion's protocol, and its ways to fail."""

import json
import multiprocessing
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.reward_fns.code_rows import SUM, calls, fenced, stdin_tests
from verl_msgrpo.rewards.code import fusion, runner
from verl_msgrpo.rewards.code_tests import compute_score


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        with self.server.lock:
            self.server.busy += 1
            self.server.most = max(self.server.most, self.server.busy)
        try:
            self.server.answer(self, request)
        finally:
            with self.server.lock:
                self.server.busy -= 1

    def reply(self, body, status=200):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def run_code(handler, request):
    """What the real server does, as far as a test needs it."""
    begun = time.monotonic()
    command = [sys.executable, "-I", "-S", "-c", request["code"]]
    result = {"status": "Finished", "return_code": 0, "stdout": "", "stderr": ""}
    try:
        done = subprocess.run(
            command,
            input=request["stdin"],
            capture_output=True,
            text=True,
            timeout=request["run_timeout"],
        )
        result |= {"stdout": done.stdout, "return_code": done.returncode}
    except subprocess.TimeoutExpired:
        result |= {"status": "TimeLimitExceeded", "return_code": None}
    result["execution_time"] = time.monotonic() - begun
    good = result["status"] == "Finished" and result["return_code"] == 0
    handler.reply({"status": "Success" if good else "Failed", "run_result": result})


@pytest.fixture
def server(monkeypatch):
    def refuse(*_):
        raise AssertionError("a program ran here")

    monkeypatch.setattr(runner, "run", refuse)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.answer, server.requests, server.lock = run_code, [], threading.Lock()
    server.busy = server.most = 0
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def score(server, source, tests, **options):
    url = f"http://127.0.0.1:{server.server_address[1]}/run_code"
    return compute_score("x", fenced(source), tests, sandbox_fusion_url=url, **options)


def test_scripts(server):
    tests = stdin_tests(("1 2", "3"), ("3 4", "7"), ("5 6", "99"))
    reward = score(server, SUM, tests, memory_limit_mb=77)
    assert (reward["acc"], reward["passed"], reward["error"]) == (0, pytest.approx(2 / 3), 0)
    assert len(server.requests) == 3
    for request in server.requests:
        assert (request["language"], request["memory_limit_MB"]) == ("python", 77)
        assert "99" not in json.dumps(request)  # what is expected stays here
    assert score(server, SUM, stdin_tests(("1 2", "3")))["acc"] == 1


def test_calls(server):
    tests = calls(("1\n[2]", "[2, 1]"))
    assert score(server, "print('x')\ndef f(a, b): return (*b, a)", tests)["acc"] == 1
    for source in (
        "print('[2, 1]')\nimport os; os._exit(0)",
        "def f(a, b):\n  print([2, 1], flush=True)\n  raise SystemExit",
        "def g(a): return 1",
        "def f(",
    ):
        reward = score(server, source, tests)
        assert (reward["score"], reward["error"]) == (0, 0)


def test_time_limit(server):
    reward = score(server, "while True: pass", stdin_tests(("1", "1"), ("2", "2")), timeout_s=0.5)
    assert (reward["score"], reward["timeout"], reward["error"]) == (0, 1, 0)


def test_a_busy_server_is_asked_again(server):
    def busy_once(handler, request):
        if len(server.requests) == 1:
            handler.reply({}, 504)
        else:
            run_code(handler, request)

    server.answer = busy_once
    assert score(server, SUM, stdin_tests(("1 2", "3")))["acc"] == 1
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 500),
        ({}, 404),
        (b"<html>", 200),
        (b"[]", 200),
        (b"[" * 10**5, 200),
        ({}, 200),
        ({"status": "SandboxError", "run_result": {}}, 200),
        ({"status": "Success", "run_result": 7}, 200),
        ({"status": "Success"}, 200),
    ],
)
def test_a_server_that_fails_passes_nothing(server, body, status):
    server.answer = lambda handler, request: handler.reply(body, status)
    reward = score(server, SUM, stdin_tests(("1 2", "3"), ("3 4", "7")))
    assert (reward["score"], reward["passed"], reward["error"]) == (0, 0, 1)


@pytest.mark.parametrize(
    "result",
    [
        {"status": "Finished", "return_code": 1, "stdout": "3"},
        {"status": "Error", "return_code": 0, "stdout": "3"},
        {"status": "Finished", "return_code": 0, "stdout": None},
        {"status": "Finished", "stdout": "3"},
    ],
)
def test_a_program_that_fails_there_is_wrong(server, result):
    reply = {"status": "Failed", "run_result": result}
    server.answer = lambda handler, request: handler.reply(reply)
    reward = score(server, SUM, stdin_tests(("1 2", "3")))
    assert (reward["score"], reward["error"]) == (0, 0)


def test_a_server_that_dribbles_is_cut_off(server, monkeypatch):
    def dribble(handler, request):
        handler.send_response(200)
        handler.end_headers()
        try:
            while not stop.wait(0.1):
                handler.wfile.write(b" ")
        except OSError:
            pass

    stop = threading.Event()
    server.answer = dribble
    monkeypatch.setattr(fusion, "_NETWORK_S", 0.5)
    try:
        reward = score(server, SUM, stdin_tests(("1 2", "3")), timeout_s=0.5)
        assert not stop.is_set()  # it would have gone on
    finally:
        stop.set()
    assert (reward["score"], reward["error"]) == (0, 1)


def test_no_server():
    for url in ("http://127.0.0.1:9/run_code", "nonsense", "ftp://x/", 7):
        reward = compute_score(
            "x", fenced(SUM), stdin_tests(("1 2", "3")), sandbox_fusion_url=url, timeout_s=0.1
        )
        assert (reward["score"], reward["error"]) == (0, 1)


def test_the_semaphore_limits_requests(server):
    def slow(handler, request):
        time.sleep(0.05)
        result = {"status": "Finished", "return_code": 0, "stdout": request["stdin"]}
        handler.reply({"status": "Success", "run_result": result})

    server.answer = slow
    tests = stdin_tests(*[(str(n), str(n)) for n in range(8)])
    assert score(server, "x", tests, concurrent_semaphore=threading.Semaphore(2))["acc"] == 1
    assert server.most <= 2
    assert score(server, "x", tests)["acc"] == 1
    assert server.most > 2


def test_verl_s_semaphore(server):
    with multiprocessing.get_context("spawn").Manager() as manager:
        semaphore = manager.Semaphore(1)
        tests = stdin_tests(("1 2", "3"), ("3 4", "7"))
        assert score(server, SUM, tests, concurrent_semaphore=semaphore)["acc"] == 1
        assert server.most == 1
