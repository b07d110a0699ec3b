"""The queue in front of a backend: bounded, batched, off the event loop."""

import asyncio
import threading

import pytest

from tests.search.waiting import LIMIT_S, until_async
from verl_msgrpo.search.server.backends import Hit
from verl_msgrpo.search.server.batching import MicroBatcher, Overloaded
from verl_msgrpo.search.server.protocol import AnswerTooLarge, Metrics


class Gate:
    """A backend that waits to be let through and keeps what it was asked."""

    name = "gate"
    passages = None

    def __init__(self):
        self.open = threading.Event()
        self.calls = []
        self.closed = False

    def search(self, queries, k):
        assert threading.current_thread() is not threading.main_thread()
        self.calls.append((list(queries), k))
        assert self.open.wait(LIMIT_S)
        if "fail" in queries:
            raise ValueError("as asked")
        return [[Hit(f"{query}/{k}".encode(), 1.0)] for query in queries]

    def close(self):
        self.closed = True


def answer(queries, k):
    return [[Hit(f"{query}/{k}".encode(), 1.0)] for query in queries]


def run(scenario, *, threads=1, max_batch=4, max_waiting=6, max_answer_bytes=1000):
    """Runs `scenario(batcher, gate)` and checks that nothing is left waiting."""

    async def main():
        gate, metrics = Gate(), Metrics()
        batcher = MicroBatcher(gate, threads, max_batch, max_waiting, max_answer_bytes, metrics)
        try:
            await asyncio.wait_for(scenario(batcher, gate), LIMIT_S)
        finally:
            gate.open.set()
            await asyncio.to_thread(batcher.close)
        assert gate.closed
        assert metrics.registry.get_sample_value("retrieval_waiting_queries") == 0

    asyncio.run(main())


async def start(batcher, *requests):
    """Starts requests and lets the batcher see them."""
    tasks = [asyncio.create_task(batcher.search(queries, k)) for queries, k in requests]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def test_requests_that_arrive_together_share_a_batch():
    async def scenario(batcher, gate):
        tasks = await start(batcher, (["a"], 3), (["b", "c"], 3))
        gate.open.set()
        assert await asyncio.gather(*tasks) == [answer(["a"], 3), answer(["b", "c"], 3)]
        assert gate.calls == [(["a", "b", "c"], 3)]

    run(scenario)


def test_a_request_beyond_one_batch_is_split_and_put_together_in_order():
    async def scenario(batcher, gate):
        gate.open.set()
        queries = [str(i) for i in range(11)]
        assert await batcher.search(queries, 2) == answer(queries, 2)
        assert [len(asked) for asked, _ in gate.calls] == [4, 4, 3]

    run(scenario)


def test_each_top_k_is_searched_by_itself():
    async def scenario(batcher, gate):
        gate.open.set()
        tasks = await start(batcher, (["a"], 3), (["b"], 5), (["c"], 3))
        assert await asyncio.gather(*tasks) == [
            answer(["a"], 3),
            answer(["b"], 5),
            answer(["c"], 3),
        ]
        assert gate.calls == [(["a", "c"], 3), (["b"], 5)]

    run(scenario)


def test_a_full_queue_refuses_and_recovers():
    async def scenario(batcher, gate):
        running = await start(batcher, (["r1", "r2", "r3", "r4"], 1))
        waiting = await start(batcher, (["w1", "w2", "w3", "w4", "w5", "w6"], 1))
        with pytest.raises(Overloaded):
            await batcher.search(["x"], 1)
        gate.open.set()
        await asyncio.gather(*running, *waiting)
        assert await batcher.search(["x"], 1) == answer(["x"], 1)

    run(scenario)


def test_a_request_larger_than_the_queue_is_taken_when_nothing_waits():
    async def scenario(batcher, gate):
        gate.open.set()
        queries = [str(i) for i in range(20)]
        assert await batcher.search(queries, 1) == answer(queries, 1)

    run(scenario)


def test_a_given_up_request_leaves_the_queue():
    async def scenario(batcher, gate):
        running = await start(batcher, (["r1", "r2", "r3", "r4"], 1))
        given_up = await start(batcher, (["w"] * 6, 1))
        given_up[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up[0]
        accepted = await start(batcher, (["y"] * 6, 1))
        gate.open.set()
        await asyncio.gather(*running, *accepted)
        assert all("w" not in asked for asked, _ in gate.calls)

    run(scenario)


def test_an_error_reaches_those_of_the_batch_and_the_next_batch_works():
    async def scenario(batcher, gate):
        gate.open.set()
        tasks = await start(batcher, (["fail"], 1), (["b"], 1))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, ValueError) for result in results)
        assert await batcher.search(["c"], 1) == answer(["c"], 1)
        assert await batcher.search([], 1) == []

    run(scenario)


def test_free_threads_share_what_waits():
    async def scenario(batcher, gate):
        tasks = await start(batcher, *[([str(i)], 1) for i in range(6)])
        await until_async(lambda: len(gate.calls) == 2)
        assert sorted(len(asked) for asked, _ in gate.calls) == [3, 3]
        gate.open.set()
        await asyncio.gather(*tasks)

    run(scenario, threads=2)


def test_a_request_whose_answer_grows_too_large_is_given_up_early():
    async def scenario(batcher, gate):
        gate.open.set()
        names = [f"q{i}" for i in range(9)]  # 4 bytes each with "/3"
        with pytest.raises(AnswerTooLarge):
            await batcher.search(names, 3)
        assert len(gate.calls) < 9
        assert await batcher.search(names[:2], 3) == answer(names[:2], 3)

    run(scenario, max_batch=1, max_answer_bytes=8)
