"""Answers found elsewhere: by another server, or earlier, when a file recorded them.

A recording holds one JSON line for each distinct pair of query and top-k:
{"query": str, "topk": int, "result": [{"document": {...}, "score": float}, ...]}.
"""

import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import httpx

from verl_msgrpo.common.numbers import not_allowed
from verl_msgrpo.common.text import digest
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.backends import Backend, BackendBroken, BackendUnavailable, Hit
from verl_msgrpo.search.server.protocol import Metrics, dump_hit, read_hit

logger = logging.getLogger(__name__)

_MAX_ANSWER_BYTES = 256 << 20
_MAX_REMEMBERED = 1_000_000  # queries; beyond, the longest unseen may be written a second time


class RemoteBackend:
    """Asks a Search-R1-compatible server, one request a batch."""

    name = "remote"
    passages: int | None = None

    def __init__(self, url: str, timeout_s: float) -> None:
        """`url`: the whole address, as in http://127.0.0.1:8000/retrieve."""
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise UserError(f"--remote {url}: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            example = "a URL like http://127.0.0.1:8000/retrieve"
            raise UserError(str(not_allowed("--remote", example, url)))
        self._url = parsed
        self._client = httpx.Client(timeout=timeout_s)  # safe to use from several threads

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        body = {"queries": list(queries), "topk": k, "return_scores": True}
        try:
            with self._client.stream("POST", self._url, json=body) as response:
                if response.status_code != 200:
                    raise BackendUnavailable(f"{self._url} answered {response.status_code}")
                content = b""
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > _MAX_ANSWER_BYTES:
                        raise BackendBroken(f"{self._url} answered more than 256 MiB")
        except httpx.HTTPError as error:
            raise BackendUnavailable(f"{self._url}: {error or type(error).__name__}") from None
        try:
            results = json.loads(content)["result"]
            hits = [[read_hit(item) for item in items[:k]] for items in results]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BackendBroken(f"{self._url} does not answer in Search-R1's protocol") from None
        if len(hits) != len(queries):
            raise BackendBroken(f"{self._url}: {len(hits)} results for {len(queries)} queries")
        return hits

    def close(self) -> None:
        self._client.close()


class RecordingBackend:
    """Passes queries on and appends each new one with its answer to a file.

    A file that cannot be written (a full disk) never fails a search: it is logged once, counted,
    and recording stops.
    """

    def __init__(self, backend: Backend, path: Path, metrics: Metrics) -> None:
        self.name = backend.name
        self.passages = backend.passages
        self._backend = backend
        self._path = path
        self._metrics = metrics
        self._written: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()
        self._failed = False
        try:
            self._file = path.open("ab")
            _drop_partial_line(path)
        except OSError as error:
            raise UserError(f"--record {path}: cannot be written: {error}") from None

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        results = self._backend.search(queries, k)
        with self._lock:
            self._append(queries, k, results)
        return results

    def close(self) -> None:
        self._backend.close()
        try:
            self._file.close()
        except OSError as error:
            logger.error("--record %s: %s", self._path, error)

    def _append(self, queries: Sequence[str], k: int, results: Sequence[Sequence[Hit]]) -> None:
        if self._failed:
            self._metrics.unrecorded.inc(len(queries))
            return
        try:
            for query, hits in zip(queries, results, strict=True):
                key = _key(query, k)
                if key in self._written:
                    self._written.move_to_end(key)
                    continue
                self._file.write(_dump_row(query, k, hits))
                self._written[key] = None
                if len(self._written) > _MAX_REMEMBERED:
                    self._written.popitem(last=False)
            self._file.flush()
        except OSError as error:
            self._failed = True
            self._metrics.unrecorded.inc(len(queries))
            logger.error("--record %s: recording stopped: %s", self._path, error)


class ReplayBackend:
    """Answers from a recorded file, without corpus or index.

    A query that the file does not hold with this top-k has no hits; it is counted in
    `retrieval_replay_misses_total` and the first one is logged, since a rollout that asks something
    new has left the recorded path. Of several rows for one query the last counts.
    """

    name = "replay"
    passages: int | None = None

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self._metrics = metrics
        self._warned = False
        self._rows: dict[bytes, tuple[int, int]] = {}  # where each answer lies in the file
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"--replay {path}: cannot be read: {error}") from None
        try:
            self._scan(path)
        except BaseException:
            os.close(self._file)
            raise

    def _scan(self, path: Path) -> None:
        start = 0
        with open(self._file, "rb", buffering=1 << 20, closefd=False) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    logger.warning("--replay %s: the last line is cut short, left out", path)
                    break
                try:
                    query, k, _ = _read_row(line)
                except (ValueError, KeyError, TypeError, RecursionError):
                    raise UserError(f"--replay {path}, line {number}: not a recorded row") from None
                self._rows[_key(query, k)] = (start, len(line))
                start += len(line)
        if not self._rows:
            raise UserError(f"--replay {path}: holds no recorded row")

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [self._replay(query, k) for query in queries]

    def close(self) -> None:
        os.close(self._file)

    def _replay(self, query: str, k: int) -> list[Hit]:
        place = self._rows.get(_key(query, k))
        if place is None:
            self._metrics.replay_misses.inc()
            if not self._warned:
                self._warned = True
                logger.warning("not recorded with topk %d: %.200r (logged once)", k, query)
            return []
        start, size = place
        return _read_row(os.pread(self._file, size, start))[2]


def _key(query: str, k: int) -> bytes:
    return digest(f"{k}\n{query}")


def _dump_row(query: str, k: int, hits: Sequence[Hit]) -> bytes:
    items = b",".join(dump_hit(hit) for hit in hits)
    return b'{"query":%b,"topk":%d,"result":[%b]}\n' % (json.dumps(query).encode(), k, items)


def _read_row(line: bytes) -> tuple[str, int, list[Hit]]:
    """Query, top-k and hits. Raises ValueError, KeyError, TypeError or RecursionError."""
    row = json.loads(line)
    query, k = row["query"], row["topk"]
    if not isinstance(query, str) or not isinstance(k, int):
        raise TypeError("query or topk")
    return query, k, [read_hit(item) for item in row["result"]]


def _drop_partial_line(path: Path) -> None:
    """Cuts off what a killed server left after the last newline."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
