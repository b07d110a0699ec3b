"""Measures the retrieval server against its bars, on a synthetic corpus made here.

    python scripts/bench_search.py                 # 200 k passages, as the bars are stated
    python scripts/bench_search.py --passages 20000

Prints one line a bar: a ratio, and OK or MISSED. Every server listens on 127.0.0.1 and every
request goes there. The clients run in a process of their own and share the cores with the server,
while bm25s in process has them to itself, with as many threads as the server. They speak HTTP/1.1
on a connection each, which they keep, and do as little as a client can: requests are put together
ahead, answers are read to their end but not parsed. Anything else that runs meanwhile shifts the
ratios; the processor times, which are printed too, it shifts less. Needs the extra `search`, psutil
and numba.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

VOCABULARY = 200_000
TOPK = 3
STARTUP_SECONDS = 300
LOAD_SECONDS = 600  # no run of clients takes as long, unless the server hangs


def main() -> int:
    """Runs every measurement; the exit code is 1 where a bar was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--requests", type=int, default=6000, help="for throughput (6000)")
    parser.add_argument("--scorer", choices=("numpy", "numba"), default="numba")
    parser.add_argument("--threads", type=int, default=2, help="of the server, and of bm25s (2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--index", type=Path, help="keep the index here and use it again")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-search-") as scratch:
        return _bench(args, Path(scratch))


def _bench(args: argparse.Namespace, scratch: Path) -> int:
    words = _Words(args.seed)
    queries = words.queries(4000)
    index = args.index or scratch / "index"
    if not index.exists():
        corpus = scratch / "corpus.jsonl"
        started = time.monotonic()
        words.write_corpus(corpus, args.passages)
        print(f"corpus: {args.passages} passages in {time.monotonic() - started:.0f} s", flush=True)
        started = time.monotonic()
        _verl_msgrpo("index", "--corpus", corpus, "--output", index)
        print(f"index: {time.monotonic() - started:.0f} s", flush=True)
    one = scratch / "one.jsonl"
    one.write_text('{"id": "0", "contents": "Title\\nsome words"}\n')
    _verl_msgrpo("index", "--corpus", one, "--output", scratch / "empty")

    options = ["--scorer", args.scorer, "--threads", str(args.threads)]
    with _server(scratch / "empty", *options) as server:
        empty_rss = server.resident_bytes()
    with _server(index, *options) as server, _clients() as clients:
        clients.submit(_load, server.url, queries, 500, 64, 0).result()  # warm page cache and code
        before, cpu_server = server.batches(), server.cpu_seconds()
        steady = clients.submit(_load, server.url, queries, args.requests, 64, 0).result()
        after, cpu_server = server.batches(), server.cpu_seconds() - cpu_server
        burst = clients.submit(_load, server.url, queries, 2000, 256, 3).result()
        answers = clients.submit(_answers, server.url, queries[:1000]).result()
        rss = server.resident_bytes()
    batch = round((after[1] - before[1]) / (after[0] - before[0]))
    direct = _Direct(index, args.scorer, args.threads)
    cpu_direct = time.process_time()
    rates = [direct.throughput(queries, batch) for _ in range(3)]
    cpu_direct = time.process_time() - cpu_direct

    served = steady.answered / steady.seconds
    latencies = sorted(steady.latencies)
    median, p99 = statistics.median(latencies), latencies[int(0.99 * len(latencies))]
    equal = sum(a == b for a, b in zip(answers, direct.answers(queries[:1000]), strict=True))
    disk = sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
    others = {status: n for status, n in burst.statuses.items() if status not in (200, 503)}
    print(
        f"served {served:.0f} requests/s, in batches of {batch} on average; bm25s in process with "
        f"{args.threads} threads {max(rates):.0f} queries/s; statuses at 64 clients "
        f"{dict(steady.statuses)}, at 256 {dict(burst.statuses)}"
    )
    print(
        f"processor time: {1e3 * cpu_server / args.requests:.2f} ms a request in the server and "
        f"{1e3 * steady.cpu_seconds / args.requests:.2f} ms in the clients, "
        f"{1e3 * cpu_direct / (3 * len(queries)):.2f} ms a query for bm25s in process"
    )
    print(f"latency: median {1e3 * median:.1f} ms, p99 {1e3 * p99:.1f} ms")
    print(f"resident {rss >> 20} MiB, empty server {empty_rss >> 20} MiB, on disk {disk >> 20} MiB")
    bars = [
        ("throughput, 64 clients / bm25s in process", served / max(rates), ">=", 0.6),
        ("p99 / median", p99 / median, "<", 10.0),
        ("2000 requests, 256 clients: in 200", burst.answered / 2000, ">=", 0.95),
        ("2000 requests, 256 clients: neither 200 nor 503", sum(others.values()) / 2000, "<=", 0.0),
        ("results equal to bm25s", equal / len(answers), ">=", 1.0),
        ("(resident - empty server) / (index + corpus)", (rss - empty_rss) / disk, "<", 1.5),
    ]
    missed = 0
    for name, value, relation, bound in bars:
        ok = {">=": value >= bound, "<=": value <= bound, "<": value < bound}[relation]
        missed += not ok
        print(f"{'OK' if ok else 'MISSED':7} {value:7.3f} {relation:2} {bound:5.2f}  {name}")
    return int(missed > 0)


class _Words:
    """Text over a vocabulary with Zipf frequencies."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        lengths = self._rng.integers(3, 10, VOCABULARY)
        self._words = np.array(
            ["".join(self._rng.choice(letters, n)) for n in lengths], dtype=object
        )
        weights = 1 / (np.arange(VOCABULARY) + 2.7)  # Zipf and Mandelbrot's law
        self._cumulative = np.cumsum(weights / weights.sum())

    def text(self, shortest: int, longest: int) -> str:
        count = int(self._rng.integers(shortest, longest + 1))
        ranks = np.searchsorted(self._cumulative, self._rng.random(count))
        return " ".join(self._words[np.minimum(ranks, VOCABULARY - 1)])

    def queries(self, count: int) -> list[str]:
        return [self.text(3, 20) for _ in range(count)]

    def write_corpus(self, path: Path, passages: int) -> None:
        with path.open("w") as file:
            for i in range(passages):
                contents = f"{self.text(2, 3)}\n{self.text(60, 130)}"
                file.write(json.dumps({"id": str(i), "contents": contents}) + "\n")


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "verl_msgrpo.cli", *map(str, words)]


def _verl_msgrpo(*words: object) -> None:
    subprocess.run(_command(*words), check=True, stdout=subprocess.DEVNULL)


@dataclass
class _Server:
    """A running `verl-msgrpo serve`."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def resident_bytes(self) -> int:
        return psutil.Process(self.pid).memory_info().rss

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def batches(self) -> tuple[float, float]:
        """Batches and queries in them since the start."""
        import urllib.request

        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as page:
            lines = dict(
                line.rsplit(" ", 1) for line in page.read().decode().splitlines() if line[0] != "#"
            )
        name = "retrieval_batch_queries"
        return float(lines[f"{name}_count"]), float(lines[f"{name}_sum"])


@contextlib.contextmanager
def _server(index: Path, *options: str) -> Iterator[_Server]:
    with tempfile.TemporaryDirectory() as directory:
        port_file = Path(directory) / "port"
        process = subprocess.Popen(
            _command("serve", "--index", index, "--port", 0, "--port-file", port_file, *options)
        )
        try:
            deadline = time.monotonic() + STARTUP_SECONDS
            while not port_file.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the server did not start")
                time.sleep(0.05)
            yield _Server(process.pid, int(port_file.read_text()))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _clients() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


@dataclass
class _Load:
    """What a run of many clients saw."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the clients
    answered: int = 0
    statuses: Counter[int] = field(default_factory=Counter)  # -1: the connection failed
    latencies: list[float] = field(default_factory=list)  # of single attempts, seconds


def _load(url: str, queries: Sequence[str], requests: int, clients: int, retries: int) -> _Load:
    """Sends `requests` posts of one query from `clients` concurrent clients."""
    return asyncio.run(_run_clients(url, queries, requests, clients, retries))


async def _run_clients(
    url: str, queries: Sequence[str], requests: int, clients: int, retries: int
) -> _Load:
    load = _Load()
    host = urlsplit(url).netloc
    posts = [_post(host, query) for query in queries]
    numbers = iter(range(requests))

    async def client() -> None:
        with contextlib.closing(_Connection(host)) as connection:
            for number in numbers:
                for attempt in range(retries + 1):
                    started = time.monotonic()
                    try:
                        status = await connection.send(posts[number % len(posts)])
                    except (OSError, EOFError):
                        connection.close()
                        status = -1
                    load.statuses[status] += 1
                    load.latencies.append(time.monotonic() - started)
                    if status == 200:
                        load.answered += 1
                        break
                    await asyncio.sleep(random.uniform(0.5, 1.5) * 2**attempt)

    started, cpu_started = time.monotonic(), time.process_time()
    async with asyncio.timeout(LOAD_SECONDS):
        await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.monotonic() - started
    load.cpu_seconds = time.process_time() - cpu_started
    return load


def _post(host: str, query: str) -> bytes:
    """The bytes of a whole request."""
    body = json.dumps({"queries": [query], "topk": TOPK, "return_scores": True})
    return (
        f"POST /retrieve HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


class _Connection:
    """A connection that is opened when it is needed and kept as long as the server keeps it."""

    def __init__(self, host: str) -> None:
        self._host, _, self._port = host.rpartition(":")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> int:
        """The status of the answer, which is read to its end. Raises OSError or EOFError."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, int(self._port))
        reader, writer = self._streams
        writer.write(request)
        status_line, *lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines if line)
        await reader.readexactly(int(fields[b"content-length"]))
        if fields.get(b"connection") == b"close":
            self.close()
        return int(status_line.split()[1])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


Answer = list[tuple[str, float]]  # (passage id, score)


def _answers(url: str, queries: Sequence[str]) -> list[Answer]:
    import urllib.request

    body = {"queries": list(queries), "topk": TOPK, "return_scores": True}
    request = urllib.request.Request(f"{url}/retrieve", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        result = json.load(response)["result"]
    return [[(hit["document"]["id"], hit["score"]) for hit in hits] for hits in result]


class _Direct:
    """bm25s on the same index, in this process, without the server's code."""

    def __init__(self, index: Path, scorer: str, threads: int) -> None:
        import bm25s
        import Stemmer

        self._bm25s = bm25s
        self._stemmer = Stemmer.Stemmer("english")
        self._index = bm25s.BM25.load(index / "bm25", mmap=True, backend=scorer)
        self._threads = 0 if threads == 1 else threads
        self._retrieve([*self.tokens(["warm up the compiled code"]), ["x"]], self._threads)

    def tokens(self, queries: Sequence[str]) -> list[list[str]]:
        return self._bm25s.tokenize(
            list(queries),
            stopwords="en",
            stemmer=self._stemmer,
            return_ids=False,
            show_progress=False,
        )

    def _retrieve(self, tokens: list[list[str]], threads: int) -> tuple[np.ndarray, np.ndarray]:
        rows, scores = self._index.retrieve(tokens, k=TOPK, show_progress=False, n_threads=threads)
        return rows, scores

    def throughput(self, queries: Sequence[str], batch: int) -> float:
        """Queries a second, tokenisation included, in batches of `batch`."""
        started = time.monotonic()
        for start in range(0, len(queries), batch):
            self._retrieve(self.tokens(queries[start : start + batch]), self._threads)
        return len(queries) / (time.monotonic() - started)

    def answers(self, queries: Sequence[str]) -> list[Answer]:
        rows, scores = self._retrieve(self.tokens(queries), 0)
        return [
            [(str(row), score) for row, score in zip(r, s, strict=True)]
            for r, s in zip(rows.tolist(), scores.tolist(), strict=True)
        ]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    raise SystemExit(main())
