"""Small corpora and indexes, real server processes on free loopback ports, a fake upstream."""

import argparse
import contextlib
import json
import random
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType

import pytest

pytest.importorskip("bm25s")
pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from tests.search.waiting import LIMIT_S, until  # noqa: E402
from verl_msgrpo.search.server.index import BuildOptions  # noqa: E402
from verl_msgrpo.search.server.index import build_index as build  # noqa: E402


def run_command(module: ModuleType, *words: object) -> int:
    """Runs a sub-command in this process."""
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return module.run(parser.parse_args([str(word) for word in words]))


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def build_index(directory, rows, **options):
    corpus = write_rows(directory / "corpus.jsonl", rows)
    build([corpus], directory / "index", BuildOptions(**options))
    return directory / "index"


def make_rows(count, seed=0):
    """Passages over a vocabulary of 300 made-up words, some of them frequent."""
    rng = random.Random(seed)
    syllables = ["ba", "ke", "lu", "mi", "no", "ra", "su", "ti", "vo", "ze"]
    words = ["".join(rng.choices(syllables, k=3)) for _ in range(300)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    return [
        {
            "id": f"p{i}",
            "contents": f"Title {i}\n{' '.join(rng.choices(words, weights, k=rng.randint(5, 40)))}",
        }
        for i in range(count)
    ]


def make_queries(rows, count, seed=1):
    rng = random.Random(seed)
    texts = [row["contents"].split("\n", 1)[1].split() for row in rows]
    return [
        " ".join(rng.sample(text, min(len(text), rng.randint(2, 5))))
        for text in rng.choices(texts, k=count)
    ]


@pytest.fixture(scope="session")
def rows():
    return make_rows(300)


@pytest.fixture(scope="session")
def index(tmp_path_factory, rows):
    return build_index(tmp_path_factory.mktemp("bm25"), rows)


class Served:
    """A running `verl-msgrpo serve`."""

    def __init__(self, process, port):
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def post(self, **body):
        return httpx.post(f"{self.url}/retrieve", json=body, timeout=LIMIT_S)

    def post_bytes(self, content):
        return httpx.post(f"{self.url}/retrieve", content=content, timeout=LIMIT_S)

    def get(self, path):
        return httpx.get(f"{self.url}{path}", timeout=LIMIT_S)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)

    def wait(self):
        """The exit code, once the server has ended."""
        return self.process.wait(timeout=LIMIT_S)

    def metric(self, name):
        page = self.get("/metrics").text.splitlines()
        values = [line.rsplit(" ", 1)[1] for line in page if line.startswith(f"{name} ")]
        return float(values[0])


def command(*words):
    return [sys.executable, "-m", "verl_msgrpo.cli", *map(str, words)]


@contextlib.contextmanager
def served(directory, *options):
    """Starts a server on a free port and stops it at the end."""
    port_file = directory / f"port-{time.monotonic_ns()}"
    with (directory / "server.log").open("a") as log:
        process = subprocess.Popen(
            command("serve", "--port", 0, "--port-file", port_file, *options),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        until(lambda: port_file.exists() or process.poll() is not None, "the server did not start")
        assert port_file.exists(), (directory / "server.log").read_text()
        yield Served(process, int(port_file.read_text()))
    finally:
        process.terminate()
        try:
            process.wait(timeout=LIMIT_S)
        finally:  # whatever a test has left it with, and whoever interrupts this
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory, index):
    with served(tmp_path_factory.mktemp("server"), "--index", index) as running:
        yield running


class Upstream:
    """A Search-R1 server of three lines, whose answers can be held back or spoilt."""

    def __init__(self):
        self.open = threading.Event()
        self.open.set()
        self.arrived = threading.Semaphore(0)
        self.status = 200
        self.spoilt = None  # the body to answer instead
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                upstream.arrived.release()
                upstream.open.wait()
                answer = upstream.spoilt
                if answer is None:
                    document = {"id": "u1", "contents": "Title\ntext"}
                    hits = [{"document": document, "score": 1.5}] * min(2, body["topk"])
                    answer = json.dumps({"result": [hits for _ in body["queries"]]}).encode()
                self.send_response(upstream.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/retrieve"

    def stop(self):
        self.open.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def upstream():
    running = Upstream()
    yield running
    running.stop()
