"""Collects concurrent requests into batches and searches them off the event loop."""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from verl_msgrpo.search.server.backends import Backend, Hit
from verl_msgrpo.search.server.protocol import AnswerTooLarge, Metrics, document_bytes


def search_together(
    backend: Backend, requests: Sequence[tuple[Sequence[str], int]], metrics: Metrics
) -> list[list[list[Hit]]]:
    """Searches several requests, pairs of (queries, k), at once; returns the results of each."""
    answers: list[list[list[Hit]]] = [[] for _ in requests]
    # One search for each top-k: among equal scores, the first 3 of 5 need not be the top 3.
    for k in dict.fromkeys(k for _, k in requests):
        same = [i for i, request in enumerate(requests) if request[1] == k]
        queries = [query for i in same for query in requests[i][0]]
        with metrics.backend_seconds.time():
            results = iter(backend.search(queries, k))
        metrics.batch_queries.observe(len(queries))
        for i in same:
            answers[i] = [next(results) for _ in requests[i][0]]
    return answers


class Overloaded(Exception):  # noqa: N818
    """The queue is full."""


@dataclass(eq=False)
class _Job:
    """One request: its queries, how many were handed out, and the answers that came back."""

    queries: Sequence[str]
    k: int
    answer: asyncio.Future[list[list[Hit]]]
    taken: int = 0
    done: int = 0
    bytes: int = 0  # of the documents that came back
    results: list[list[Hit]] = field(default_factory=list)


@dataclass(frozen=True)
class _Part:
    """A run of one job's queries, part of a batch."""

    job: _Job
    start: int
    stop: int


class MicroBatcher:
    """A bounded queue in front of a backend.

    A batch starts as soon as a thread is free, with what waits at that moment and no delay added:
    batches are small when the server is idle and grow with the load. Waiting queries are spread
    over the free threads. All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        backend: Backend,
        threads: int,
        max_batch: int,
        max_waiting: int,
        max_answer_bytes: int,
        metrics: Metrics,
    ) -> None:
        """`max_batch`, `max_waiting`: queries in one batch, and waiting for one.

        `max_answer_bytes`: documents of one request, beyond which its other queries are dropped.
        """
        self._backend = backend
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="search")
        self._free = threads
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._max_answer_bytes = max_answer_bytes
        self._metrics = metrics
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._scheduled = False

    async def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Answers one request; raises Overloaded, AnswerTooLarge, or what the backend raised."""
        if not queries:
            return []
        # A request larger than the whole queue is taken when nothing else waits.
        if self._waiting and self._waiting + len(queries) > self._max_waiting:
            raise Overloaded
        loop = asyncio.get_running_loop()
        job = _Job(queries, k, loop.create_future(), results=[[]] * len(queries))
        self._jobs.append(job)
        self._count_waiting(len(queries))
        self._schedule(loop)
        try:
            return await job.answer
        finally:
            if job.taken < len(queries) and job in self._jobs:  # given up: timeout or disconnect
                self._jobs.remove(job)
                self._count_waiting(job.taken - len(queries))

    def close(self) -> None:
        """Waits for running batches, then closes the backend."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._backend.close()

    def _count_waiting(self, change: int) -> None:
        self._waiting += change
        self._metrics.waiting.set(self._waiting)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        # Once a loop iteration, so that requests that arrived together are batched together.
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._dispatch, loop)

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        while self._free and self._jobs:
            parts = self._take(min(self._max_batch, math.ceil(self._waiting / self._free)))
            self._free -= 1
            running = loop.run_in_executor(self._executor, self._run, parts)
            running.add_done_callback(partial(self._finish, loop, parts))

    def _take(self, size: int) -> list[_Part]:
        parts = []
        while size and self._jobs:
            job = self._jobs[0]
            stop = min(len(job.queries), job.taken + size)
            parts.append(_Part(job, job.taken, stop))
            size -= stop - job.taken
            self._count_waiting(job.taken - stop)
            job.taken = stop
            if stop == len(job.queries):
                self._jobs.popleft()
        return parts

    def _run(self, parts: Sequence[_Part]) -> list[list[list[Hit]]]:
        """Searches one batch, in a worker thread; returns the results of each part."""
        asked = [(part.job.queries[part.start : part.stop], part.job.k) for part in parts]
        return search_together(self._backend, asked, self._metrics)

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        parts: Sequence[_Part],
        run: asyncio.Future[list[list[list[Hit]]]],
    ) -> None:
        self._free += 1
        if self._jobs:
            self._schedule(loop)
        if run.cancelled():  # the executor was shut down
            for part in parts:
                part.job.answer.cancel()
            return
        error = run.exception()
        for i, part in enumerate(parts):
            job = part.job
            if job.answer.done():
                continue
            if error is not None:
                job.answer.set_exception(error)
                continue
            results = run.result()[i]
            job.bytes += document_bytes(results)
            if job.bytes > self._max_answer_bytes:
                job.results.clear()
                job.answer.set_exception(AnswerTooLarge(self._max_answer_bytes))
                continue
            job.results[part.start : part.stop] = results
            job.done += part.stop - part.start
            if job.done == len(job.queries):
                job.answer.set_result(job.results)
