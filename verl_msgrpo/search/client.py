"""Asks a retrieval server from inside a rollout: fast, bounded in time, never raising into it.

One client serves a whole agent loop worker. It keeps connections open, asks equal queries once
while their answer is on its way and remembers answers, retries within one deadline, and, while the
server is down, fails at once instead of making every rollout wait. `probe` asks one question
through the same code before a training starts.
"""

import asyncio
import json
import logging
import os
import queue
import random
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence

import aiohttp

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.metrics import SearchResult
from verl_msgrpo.search.settings import ClientSettings

logger = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 8 << 20
# Longer passages are cut before they are kept: an observation never has room for more.
MAX_PASSAGE_CHARS = 8192
# Consecutive failures until the server counts as down, and how long until it is tried again.
FAILURES_UNTIL_OPEN = 8
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 10.0
_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 5.0
_WARN_EVERY_S = 60.0
PROBE_ATTEMPTS = 3
_PROBE_PAUSE_S = 1.0
_PROBE_QUERY = "Is this server ready?"


class RetrievalError(Exception):
    """A search that failed; the message is short and meant for the model."""


class _AttemptError(Exception):
    """One request that failed."""

    def __init__(self, reason: str, *, again: bool, down: bool, after: float = 0.0) -> None:
        """again: a retry makes sense; down: it speaks for a dead server; after: wait, in s."""
        super().__init__(reason)
        self.again = again
        self.down = down
        self.after = after


class CircuitBreaker:
    """Says whether to ask at all: not while the server is down, except one probe now and then."""

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE_S
        self._refuses_until = 0.0
        self._probing = False

    def allows(self, now: float) -> bool:
        """Whether a request may be sent at time `now` (monotonic, s); a yes may be the probe."""
        if self._failures < FAILURES_UNTIL_OPEN:
            return True
        if now < self._refuses_until:
            return False
        self._probing = True
        self._refuses_until = now + self._pause  # the others wait for what the probe brings
        return True

    def succeeded(self) -> None:
        """The server answered."""
        self._failures = 0
        self._pause = FIRST_PAUSE_S
        self._probing = False

    def failed(self, now: float) -> None:
        """The server did not answer as it should."""
        self._failures += 1
        if self._failures < FAILURES_UNTIL_OPEN:
            return
        if self._probing:
            self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        elif self._failures > FAILURES_UNTIL_OPEN:
            return  # sent before the others had failed: says nothing new
        self._probing = False
        self._refuses_until = now + self._pause


class RetrievalClient:
    """The client of one event loop. Make it through `client_for`, which shares it."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._breaker = CircuitBreaker()
        self._slots = asyncio.Semaphore(settings.max_in_flight)
        self._cache: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._on_their_way: dict[str, asyncio.Task[dict[str, tuple[str, ...]]]] = {}
        # Its own generator: retries must not move the seeded one of a reproducible run.
        self._random = random.Random()
        self._warned = -_WARN_EVERY_S

    async def search(self, queries: Sequence[str]) -> list[SearchResult]:
        """Answers each query within `settings.deadline` seconds; never raises for a failure."""
        started = time.monotonic()
        remembered = {query: self._cache[query] for query in queries if query in self._cache}
        for query in remembered:
            self._cache.move_to_end(query)
        asked = [q for q in dict.fromkeys(queries) if q not in remembered]
        new = [query for query in asked if query not in self._on_their_way]
        if new:
            # A task of its own: it goes on for the others if this caller is cancelled.
            task = asyncio.create_task(self._answer(new))
            for query in new:
                self._on_their_way[query] = task
            task.add_done_callback(lambda done: self._arrived(new, done))
        waiting = {query: self._on_their_way[query] for query in asked}
        if waiting:
            await asyncio.wait(set(waiting.values()))
        seconds = time.monotonic() - started

        def found(query: str) -> SearchResult:
            if query in remembered:
                return SearchResult(remembered[query], cached=True, seconds=seconds)
            task = waiting[query]
            error = RetrievalError("stopped") if task.cancelled() else task.exception()
            if error is None:
                answers = task.result()
                return SearchResult(answers[query], cached=query not in new, seconds=seconds)
            reason = str(error) if isinstance(error, RetrievalError) else "internal error"
            return SearchResult(error=reason, cached=False, seconds=seconds)

        return [found(query) for query in queries]

    async def failure(self) -> str | None:
        """Sends one request, past cache and circuit breaker: why it fails, None if it does not."""
        try:
            await self._request([_PROBE_QUERY])
        except _AttemptError as error:
            return _as_people_read_it(error)
        except Exception as error:  # an address that nothing can be made of
            return f"{type(error).__name__}: {error}".partition("\n")[0]
        return None

    async def close(self) -> None:
        """Ends what is on its way and closes the connections; a later search opens new ones."""
        for task in set(self._on_their_way.values()):
            task.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _arrived(
        self, queries: Sequence[str], task: asyncio.Task[dict[str, tuple[str, ...]]]
    ) -> None:
        for query in queries:
            self._on_their_way.pop(query, None)
        if not task.cancelled():
            task.exception()  # seen: callers may all be gone

    async def _answer(self, queries: list[str]) -> dict[str, tuple[str, ...]]:
        """Passages of each query. Raises RetrievalError, and nothing else."""
        deadline = time.monotonic() + self.settings.deadline
        reason = "no answer in time"
        try:
            async with asyncio.timeout(self.settings.deadline):
                for attempt in range(1 + self.settings.max_retries):
                    if not self._breaker.allows(time.monotonic()):
                        reason = "the search service is down"
                        break
                    try:
                        results = await self._request(queries)
                    except _AttemptError as error:
                        reason = str(error)
                        self._note(error)
                        if not error.again or attempt == self.settings.max_retries:
                            break
                        pause = max(error.after, self._backoff(attempt))
                        if time.monotonic() + pause >= deadline:
                            break
                        await asyncio.sleep(pause)
                    else:
                        self._breaker.succeeded()
                        return self._remember(queries, results)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            reason = "the search was stopped"
        except Exception as error:
            logger.exception("unexpected failure of a search")
            reason = f"internal error ({type(error).__name__})"
        raise RetrievalError(reason)

    def _backoff(self, attempt: int) -> float:
        longest = min(_FIRST_BACKOFF_S * 4**attempt, _LONGEST_BACKOFF_S)
        return longest * self._random.uniform(0.5, 1.5)

    def _note(self, error: _AttemptError) -> None:
        now = time.monotonic()
        if error.down:
            self._breaker.failed(now)
        else:
            self._breaker.succeeded()
        if now - self._warned >= _WARN_EVERY_S:
            self._warned = now
            logger.warning(
                "retrieval server %s: %s (further failures of the next %d s are not logged)",
                self.settings.url,
                error,
                _WARN_EVERY_S,
            )

    def _remember(
        self, queries: Sequence[str], results: Sequence[tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        answers = dict(zip(queries, results, strict=True))
        if self.settings.cache_size:
            self._cache.update(answers)
            while len(self._cache) > self.settings.cache_size:
                self._cache.popitem(last=False)
        return answers

    async def _request(self, queries: list[str]) -> list[tuple[str, ...]]:
        """One request. Raises _AttemptError."""
        body = {"queries": queries, "topk": self.settings.topk, "return_scores": True}
        async with self._slots:
            try:
                async with (
                    asyncio.timeout(self.settings.timeout),
                    self._open_session().post(
                        self.settings.url, json=body, allow_redirects=False
                    ) as response,
                ):
                    if response.status != 200:
                        raise _refusal(response)
                    content = bytearray()
                    async for chunk in response.content.iter_any():
                        content += chunk
                        if len(content) > MAX_RESPONSE_BYTES:
                            raise _AttemptError("the answer is too large", again=False, down=True)
            except TimeoutError:
                raise _AttemptError("no answer in time", again=True, down=True) from None
            except (aiohttp.ClientError, OSError) as error:
                reason = f"no connection ({type(error).__name__})"
                raise _AttemptError(reason, again=True, down=True) from error
        try:
            return read_answer(bytes(content), len(queries), self.settings.topk)
        except ValueError as error:
            raise _AttemptError(str(error), again=True, down=True) from None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self.settings.max_in_flight, keepalive_timeout=60
                ),
                # Deadlines are set where they are known.
                timeout=aiohttp.ClientTimeout(total=None),
                raise_for_status=False,
            )
        return self._session


def _refusal(response: aiohttp.ClientResponse) -> _AttemptError:
    status = response.status
    if status in (429, 503):  # alive, but overloaded
        after = response.headers.get("Retry-After", "")
        seconds = float(after) if after.isdecimal() and len(after) < 6 else 0.0
        return _AttemptError(
            "the search service is overloaded", again=True, down=False, after=seconds
        )
    server_failed = status >= 500
    reason = f"the search service answered {status}"
    return _AttemptError(reason, again=server_failed, down=server_failed)


def _as_people_read_it(error: _AttemptError) -> str:
    """With what the operating system says, which a model could do nothing with."""
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientResponseError):  # its own text quotes what the server sent
        return "it does not speak HTTP"
    if isinstance(cause, OSError) and cause.errno is not None:
        # asyncio's text for a positive number is the address; a negative one is of getaddrinfo.
        reason = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror
        return f"no connection ({reason})"
    return str(error)


def read_answer(content: bytes, queries: int, topk: int) -> list[tuple[str, ...]]:
    """The `contents` of each query's passages out of an answer in Search-R1's protocol.

    Both forms are read: scored (`{"document": {...}, "score": s}`) and plain documents. Raises
    ValueError with a short reason.
    """
    try:
        results = json.loads(content)["result"]
        read = [tuple(_contents(item) for item in items[:topk]) for items in results]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the search service does not speak Search-R1's protocol") from None
    if len(read) != queries:
        raise ValueError(f"{len(read)} results for {queries} queries")
    return read


def _contents(item: object) -> str:
    document = item.get("document", item) if isinstance(item, dict) else None
    contents = document["contents"] if isinstance(document, dict) else None
    if not isinstance(contents, str):
        raise TypeError("a document without contents")
    return contents[:MAX_PASSAGE_CHARS]


_CLIENTS: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, dict[ClientSettings, RetrievalClient]
] = weakref.WeakKeyDictionary()


def client_for(settings: ClientSettings) -> RetrievalClient:
    """The running event loop's client with these settings, made when it is first asked for."""
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    if settings not in clients:
        clients[settings] = RetrievalClient(settings)
    return clients[settings]


async def close_clients() -> None:
    """Closes all clients of the running event loop."""
    for client in _CLIENTS.pop(asyncio.get_running_loop(), {}).values():
        await client.close()


def probe(settings: ClientSettings) -> None:
    """Makes sure, before a training starts, that the server answers.

    One search, tried three times, each `settings.timeout` seconds long at most. It may be called
    where an event loop runs already.

    Raises:
        UserError: no attempt gets a valid answer.
    """
    reason = None
    for attempt in range(PROBE_ATTEMPTS):
        if attempt:
            time.sleep(_PROBE_PAUSE_S)
        reason = _failure_in_time(settings)
        if reason is None:
            return
    raise UserError(
        f"retrieval server {settings.url}: {reason}; start it (verl-msgrpo serve) or correct "
        "retrieval_service_url (`probe: false` skips this check)"
    )


def _failure_in_time(settings: ClientSettings) -> str | None:
    failures: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    async def ask() -> None:
        client = RetrievalClient(settings)
        try:
            failures.put(await client.failure())
        finally:
            await client.close()

    # A thread, which is left behind when the time is over: looking up a name cannot be cancelled.
    threading.Thread(target=lambda: asyncio.run(ask()), daemon=True).start()
    try:
        return failures.get(timeout=settings.timeout)
    except queue.Empty:
        return "no answer in time"
