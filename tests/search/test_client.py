"""The retrieval client against real servers with real faults."""

import asyncio
import contextlib
import socket
import threading

import pytest

from tests.search.fakes import closed_port, retrieval_server, url_of
from tests.search.waiting import LIMIT_S, until_async
from verl_msgrpo.errors import UserError
from verl_msgrpo.search import client as client_module
from verl_msgrpo.search.client import (
    FAILURES_UNTIL_OPEN,
    FIRST_PAUSE_S,
    CircuitBreaker,
    RetrievalClient,
    client_for,
    close_clients,
    probe,
    read_answer,
)
from verl_msgrpo.search.settings import ClientSettings


@pytest.fixture
def server():
    with retrieval_server() as running:
        yield running


class Clock:
    """In the place of the module `time` of the client: moves only when a test moves it."""

    def __init__(self):
        self.now_s = 1000.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


def run(server, work, **settings):
    """Runs `work(client)` in an event loop of its own; server may be a URL."""
    url = server if isinstance(server, str) else server.url
    settings = {"max_retries": 1, **settings}

    async def main():
        client = RetrievalClient(ClientSettings(url=url, **settings))
        try:
            async with asyncio.timeout(LIMIT_S):
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
    server.hold()

    async def work(client):
        searches = asyncio.gather(*(client.search(["a", f"b{i % 2}"]) for i in range(8)))
        await until_async(lambda: len(server.asked) >= 3)
        server.release()
        return await searches

    results = run(server, work)
    assert sorted(server.asked) == ["a", "b0", "b1"]
    assert sum(found.cached for pair in results for found in pair) == 13  # 16 less 3
    assert len({pair[0].passages for pair in results}) == 1


def test_a_caller_that_gives_up_takes_nobody_along(server):
    server.hold()

    async def work(client):
        first = asyncio.create_task(client.search(["a"]))
        await until_async(lambda: server.asked)
        second = asyncio.create_task(client.search(["a"]))
        await asyncio.sleep(0)  # one step of the loop: both wait for the same request now
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        server.release()
        return await second

    (found,) = run(server, work)
    assert found.error is None
    assert found.cached
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


def test_a_server_that_never_answers_is_given_up(server):
    server.hold()
    (found,) = search(server, "a", timeout=2.0, max_retries=1)
    assert found.error == "no answer in time"
    assert len(server.bodies) == 2


def test_connections_are_used_again(server):
    async def work(client):
        for i in range(20):
            await client.search([f"q{i}"])

    run(server, work)
    assert len(server.asked) == 20
    assert server.connections == 1


def test_a_dead_server_fails_fast_and_is_found_again(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(client_module, "time", clock)

    async def work(client):
        for i in range(FAILURES_UNTIL_OPEN):
            (failed,) = await client.search([f"q{i}"])
            assert failed.error == "no connection (ClientConnectorError)"
        refused = await client.search(["x"])
        with retrieval_server(port) as again:
            clock.now_s += FIRST_PAUSE_S - 0.125
            still = await client.search(["x"])
            assert not again.bodies  # fails without asking
            clock.now_s += 0.125
            recovered = await client.search(["x"])
            others = await client.search(["y"])
        return refused, still, recovered, others

    with closed_port() as port:
        (refused,), (still,), (recovered,), (others,) = run(url_of(port), work, max_retries=0)
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
    server.hold()

    async def work(client):
        searches = asyncio.gather(*(client.search([f"q{i}"]) for i in range(12)))
        await until_async(lambda: server.at_once == 3)
        server.release()
        await searches

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


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(client_module, "_PROBE_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("rubbish", "the search service does not speak Search-R1's protocol"),
        ("refused", "the search service answered 422"),
        ("broken", "the search service answered 500"),
        ("overloaded", "the search service is overloaded"),
        ("hang_up", "no connection (ServerDisconnectedError)"),
    ],
)
def test_training_does_not_start_without_a_server_that_answers(server, no_pause, mode, said):
    server.mode = mode
    with pytest.raises(UserError) as error:
        probe(ClientSettings(server.url))
    assert str(error.value) == (
        f"retrieval server {server.url}: {said}; start it (verl-msgrpo serve) or correct "
        "retrieval_service_url (`probe: false` skips this check)"
    )
    assert len(server.bodies) == client_module.PROBE_ATTEMPTS


def test_training_does_not_start_without_a_server(no_pause):
    with closed_port() as port, pytest.raises(UserError, match=r"no connection \(Connection ref"):
        probe(ClientSettings(url_of(port)))


@contextlib.contextmanager
def raw_server(answer):
    """The URL of a port where every connection is given to `answer`, in a thread of its own."""

    def serve(connection):
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            answer(connection)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/retrieve"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200]
)
def test_a_port_that_is_not_http_is_told_in_a_line(answer, no_pause):
    with (
        raw_server(lambda connection: connection.sendall(answer)) as url,
        pytest.raises(UserError, match="it does not speak HTTP; start it") as error,
    ):
        probe(ClientSettings(url))
    assert "\n" not in str(error.value)


def test_a_server_that_drips_is_given_up(no_pause):
    """Each byte comes in time, the answer never: only the whole can be bounded."""
    over = threading.Event()

    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not over.wait(0.01):
            connection.sendall(b"x")

    with raw_server(drip) as url:
        with pytest.raises(UserError, match="no answer in time"):
            probe(ClientSettings(url, timeout=0.2))
        over.set()


@pytest.mark.parametrize("mebibytes", [2, 9])
def test_the_probe_reads_as_much_as_a_search(server, no_pause, mebibytes):
    server.contents = ["x" * (mebibytes << 20)]
    settings = ClientSettings(server.url)
    if mebibytes == 2:
        probe(settings)
    else:
        with pytest.raises(UserError, match="the answer is too large"):
            probe(settings)


def test_the_probe_runs_where_a_loop_runs(server):
    async def main():
        probe(ClientSettings(server.url))

    asyncio.run(main())
    assert len(server.asked) == 1


def test_an_address_of_which_nothing_can_be_made_is_told_in_a_line(no_pause):
    with pytest.raises(UserError, match=r"http://a\.\.b/retrieve: .*label") as error:
        probe(ClientSettings("http://a..b/retrieve"))
    assert "\n" not in str(error.value)
