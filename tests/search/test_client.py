"""The retrieval client against real servers with real faults."""

import asyncio
import time

import pytest

from tests.search.fakes import retrieval_server
from verl_msgrpo.search import client as client_module
from verl_msgrpo.search.client import (
    FAILURES_UNTIL_OPEN,
    FIRST_PAUSE_S,
    CircuitBreaker,
    RetrievalClient,
    client_for,
    close_clients,
    read_answer,
)
from verl_msgrpo.search.settings import ClientSettings


@pytest.fixture
def server():
    with retrieval_server() as running:
        yield running


def run(server, work, **settings):
    """Runs `work(client)` in an event loop of its own; server may be a URL."""
    url = server if isinstance(server, str) else server.url
    settings = {"timeout": 5.0, "max_retries": 1, **settings}

    async def main():
        client = RetrievalClient(ClientSettings(url=url, **settings))
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(main())


def search(server, *queries, **settings):
    return run(server, lambda client: client.search(queries), **settings)


@pytest.mark.parametrize("mode", ["ok", "plain"])
def test_passages_come_in_order_with_and_without_scores(server, mode):
    server.mode = mode
    first, second = search(server, "dune", "herbert", topk=2)
    assert first.passages == (
        "About dune\nThe text on dune, number 0.",
        "About dune\nThe text on dune, number 1.",
    )
    assert second.passages[0].startswith("About herbert")
    assert first.error is None
    assert server.bodies == [{"queries": ["dune", "herbert"], "topk": 2, "return_scores": True}]


def test_the_cache_answers_again_and_forgets_the_oldest(server):
    async def work(client):
        results = [await client.search([query]) for query in "ababcba"]
        return [found.cached for (found,) in results]

    # Two places: a and b are kept, c pushes out a, which is asked again and pushes out c.
    assert run(server, work, cache_size=2) == [False, False, True, True, False, True, False]
    assert server.asked == ["a", "b", "c", "a"]


def test_without_a_cache_every_search_is_asked(server):
    async def work(client):
        return [(await client.search(["a"]))[0].cached for _ in range(2)]

    assert run(server, work, cache_size=0) == [False, False]


def test_equal_queries_on_their_way_are_asked_once(server):
    server.delay = 0.2

    async def work(client):
        return await asyncio.gather(*(client.search(["a", f"b{i % 2}"]) for i in range(8)))

    results = run(server, work)
    assert sorted(server.asked) == ["a", "b0", "b1"]
    assert sum(found.cached for pair in results for found in pair) == 13  # 16 less 3
    assert len({pair[0].passages for pair in results}) == 1


def test_a_caller_that_gives_up_takes_nobody_along(server):
    server.delay = 0.3

    async def work(client):
        first = asyncio.create_task(client.search(["a"]))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(client.search(["a"]))
        await asyncio.sleep(0.05)
        first.cancel()
        return await second

    (found,) = run(server, work)
    assert found.error is None
    assert server.asked == ["a"]


@pytest.mark.parametrize(
    ("mode", "requests", "said"),
    [
        ("rubbish", 2, "protocol"),
        ("short", 2, "0 results for 1 queries"),
        ("broken", 2, "500"),
        ("overloaded", 2, "overloaded"),
        ("hang_up", 2, "no connection"),
        ("refused", 1, "422"),  # asking again cannot help
        ("huge", 1, "too large"),
    ],
)
def test_a_fault_is_retried_and_told_in_a_line(server, mode, requests, said):
    server.mode = mode
    (found,) = search(server, "a")
    assert len(server.bodies) == requests
    assert said in found.error
    assert len(found.error) < 80
    assert found.passages == ()


def test_errors_are_not_remembered(server):
    async def work(client):
        server.mode = "broken"
        (before,) = await client.search(["a"])
        server.mode = "ok"
        (after,) = await client.search(["a"])
        return before, after

    before, after = run(server, work, max_retries=0)
    assert before.error
    assert after.passages
    assert not after.cached


def test_t15_a_server_that_sleeps_a_minute(server):
    server.mode = "slow"
    began = time.monotonic()
    (found,) = search(server, "a", timeout=2.0, max_retries=1)
    assert time.monotonic() - began < 6  # the bound that the case states
    assert found.error == "no answer in time"
    assert len(server.bodies) == 2


def test_t15_connections_are_used_again(server):
    async def work(client):
        for i in range(20):
            await client.search([f"q{i}"])
        return len(client._session.connector._conns)

    assert run(server, work) == 1


def test_a_dead_server_fails_fast_and_is_found_again():
    with retrieval_server() as server:
        port, url = server.port, server.url

    async def work(client):
        for i in range(FAILURES_UNTIL_OPEN):
            await client.search([f"q{i}"])
        refused = await client.search(["x"])
        with retrieval_server(port) as again:
            still = await client.search(["x"])
            assert not again.bodies  # fails without asking
            await asyncio.sleep(FIRST_PAUSE_S + 0.2)
            recovered = await client.search(["x"])
            others = await client.search(["y"])
        return refused, still, recovered, others

    (refused,), (still,), (recovered,), (others,) = run(url, work, max_retries=0)
    assert refused.error == still.error == "the search service is down"
    assert recovered.passages
    assert others.passages


def test_the_circuit_breaker_by_the_clock():
    breaker = CircuitBreaker()
    for _ in range(FAILURES_UNTIL_OPEN):
        assert breaker.allows(10.0)
        breaker.failed(10.0)
    breaker.failed(10.0)  # a late one changes nothing
    assert not breaker.allows(10.9)
    assert breaker.allows(11.0)  # the probe
    assert not breaker.allows(11.1)  # the others wait for it
    breaker.failed(11.2)
    assert not breaker.allows(13.1)  # the pause has doubled
    assert breaker.allows(13.3)
    breaker.succeeded()
    assert breaker.allows(13.3)
    assert breaker.allows(13.3)


def test_a_probe_that_is_never_heard_of_again_does_not_close_for_ever():
    breaker = CircuitBreaker()
    for _ in range(FAILURES_UNTIL_OPEN):
        breaker.failed(0.0)
    assert breaker.allows(1.0)
    assert breaker.allows(2.1)


def test_overload_does_not_count_as_down(server):
    server.mode = "overloaded"

    async def work(client):
        for i in range(2 * FAILURES_UNTIL_OPEN):
            await client.search([f"q{i}"])
        server.mode = "ok"
        return await client.search(["x"])

    (found,) = run(server, work, max_retries=0)
    assert found.passages


def test_no_more_requests_at_one_time_than_allowed(server):
    server.delay = 0.05

    async def work(client):
        await asyncio.gather(*(client.search([f"q{i}"]) for i in range(12)))

    run(server, work, max_in_flight=3, cache_size=0)
    assert server.most_at_once == 3
    assert len(server.asked) == 12


def test_one_client_a_loop_and_settings(server):
    settings = ClientSettings(url=server.url)

    async def main():
        first, second = client_for(settings), client_for(ClientSettings(url=server.url))
        other = client_for(ClientSettings(url=server.url, topk=5))
        await first.search(["a"])
        await close_clients()
        return first, second, other

    first, second, other = asyncio.run(main())
    assert first is second
    assert other is not first
    assert asyncio.run(main())[0] is not first


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"result": null}',
        b'{"result": [[{"id": 1}]]}',
        b'{"result": [[{"document": {"contents": 5}}]]}',
        b'{"result": [["text"]]}',
        b'{"result": [[null]]}',
        b'{"result": [7]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer_is_an_error(content):
    with pytest.raises(ValueError, match="protocol"):
        read_answer(content, 1, 3)


def test_an_answer_is_bounded():
    long = '"' + "x" * 20_000 + '"'
    content = '{"result": [[' + ",".join(f'{{"contents": {long}}}' for _ in range(5)) + "]]}"
    (passages,) = read_answer(content.encode(), 1, 2)
    assert [len(text) for text in passages] == [client_module.MAX_PASSAGE_CHARS] * 2
