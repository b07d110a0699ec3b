"""Runs a program on tests by a Sandbox Fusion server, verl's `reward.sandbox_fusion.url`.

The server gets the program and a test's input, `POST {"code", "language", "stdin", ...}`, and says
what was printed; that is judged here. It never gets what is expected.
"""

import contextlib
import http.client
import inspect
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol
from urllib.parse import urlsplit

from verl_msgrpo.rewards.code.runner import End, Program
from verl_msgrpo.rewards.code.sandbox import program as inside
from verl_msgrpo.rewards.code.sandbox.supervisor import RECURSION_LIMIT

_AT_ONCE = 8
# For waiting at the server and on the way; not the program's time.
_NETWORK_S = 20.0
_QUEUE_S = 120.0
_TRIES = 3
_BUSY = (429, 502, 503, 504)
_RESPONSE_BYTES = 64 << 20


class FusionError(RuntimeError):
    """The server did not run a program; says why."""


class Semaphore(Protocol):
    """What verl shares among processes, or threading's."""

    def acquire(self, blocking: bool, timeout: float, /) -> bool:
        """Whether it was acquired in time."""

    def release(self) -> object:
        """Gives it back."""


def run(
    url: str,
    program: Program,
    inputs: Sequence[str],
    judge: Callable[[int, bytes], None],
    limit_s: float,
    memory_mb: int,
    semaphore: Semaphore | None = None,
) -> End:
    """As `runner.run`, by the server; raises FusionError where it fails on any test.

    limit_s: seconds of the program's own time, as the server measures it, for all tests.
    semaphore: limits how many requests are under way.
    """
    remote = _Remote(url, _source(program), limit_s, memory_mb, semaphore)
    with ThreadPoolExecutor(min(_AT_ONCE, len(inputs))) as threads:
        outputs = threads.map(remote.printed, inputs)
        try:
            for number, output in enumerate(outputs):
                if output is not None:
                    judge(number, output.encode("utf-8", "replace"))
        except BaseException:
            remote.stop()
            raise
    return End(timeout=remote.timeout)


class _Remote:
    """One program and what it has used of its time."""

    def __init__(
        self, url: str, code: str, limit_s: float, memory_mb: int, semaphore: Semaphore | None
    ) -> None:
        self._url, self._code, self._memory_mb = url, code, memory_mb
        self._semaphore = semaphore
        self._left_s = self._limit_s = limit_s
        self._stopped = False
        self._deadline = time.monotonic() + limit_s + _QUEUE_S
        self.timeout = False

    def stop(self) -> None:
        """Starts no further test."""
        self._stopped = True

    def printed(self, stdin: str) -> str | None:
        """What the program prints, None where it fails or has no time left."""
        if self._stopped:
            return None
        with _held(self._semaphore, self._deadline):
            limit_s = self._left_s
            if limit_s <= 0:
                self.timeout = True
                return None
            begun = time.monotonic()
            reply = self._ask(stdin, limit_s)
        return self._read(reply, time.monotonic() - begun)

    def _ask(self, stdin: str, limit_s: float) -> dict[str, object]:
        request = {
            "code": self._code,
            "stdin": stdin,
            "language": "python",
            "compile_timeout": limit_s,
            "run_timeout": limit_s,
            "memory_limit_MB": self._memory_mb,
            "files": {},
            "fetch_files": [],
        }
        deadline = min(self._deadline, time.monotonic() + limit_s + _NETWORK_S)
        return _post(self._url, json.dumps(request).encode(), deadline)

    def _read(self, reply: dict[str, object], elapsed_s: float) -> str | None:
        result = reply.get("run_result")
        if reply.get("status") not in ("Success", "Failed") or not isinstance(result, dict):
            raise FusionError(f"the sandbox server answers {str(reply)[:200]}")
        used = result.get("execution_time")
        self._left_s -= float(used) if isinstance(used, int | float) else elapsed_s
        if result.get("status") == "TimeLimitExceeded":
            self._left_s, self.timeout = 0.0, True
        finished = result.get("status") == "Finished" and result.get("return_code") == 0
        stdout = result.get("stdout")
        return stdout if finished and isinstance(stdout, str) else None


def _source(program: Program) -> str:
    """The program in the same frame as in a sandbox of our own."""
    lines = [inspect.getsource(inside), "import os", "prelude = {}"]
    lines += [f"exec({program.prelude!r}, prelude)", f"sys.setrecursionlimit({RECURSION_LIMIT})"]
    lines += [f'code = compile({program.source!r}, "<program>", "exec", dont_inherit=True)']
    if program.function:
        lines += [
            "arguments, returned = sys.stdin.read(), os.dup(1)",
            "os.dup2(os.open(os.devnull, os.O_RDWR), 1)",
            f"value = call_function(code, prelude, {program.function!r}, arguments)",
            'with open(returned, "wb") as file:',
            "    file.write(value)",
        ]
    else:
        lines += ["run_script(code, prelude)"]
    return "\n".join(lines)


@contextlib.contextmanager
def _held(semaphore: Semaphore | None, deadline: float) -> Iterator[None]:
    if semaphore is None:
        yield
        return
    if not semaphore.acquire(True, max(deadline - time.monotonic(), 0)):
        raise FusionError("no free place at the sandbox server")
    try:
        yield
    finally:
        semaphore.release()


def _post(url: str, body: bytes, deadline: float) -> dict[str, object]:
    """The JSON object that the server answers; tries again while it is busy."""
    for attempt in range(_TRIES):
        try:
            status, answer = _exchange(url, body, deadline)
            failure = f"HTTP status {status}"
            if status == 200:
                reply = json.loads(answer)
                if isinstance(reply, dict):
                    return reply
                failure = "an answer that is not a JSON object"
            elif status not in _BUSY:
                break
        except (OSError, http.client.HTTPException) as error:
            failure = repr(error)
        except (ValueError, RecursionError):
            failure = "an answer that is not JSON"
            break
        wait_s = 0.5 * 2**attempt
        if attempt + 1 == _TRIES or time.monotonic() + wait_s >= deadline:
            break
        time.sleep(wait_s)
    raise FusionError(f"no result from the sandbox server {url}: {failure}")


def _exchange(url: str, body: bytes, deadline: float) -> tuple[int, bytes]:
    """Status and body of one POST; the connection is cut at the deadline, whatever it is doing."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FusionError(f"sandbox_fusion_url is not a URL: {url!r}")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    left_s = max(deadline - time.monotonic(), 0.01)
    connection = kind(parts.hostname, parts.port, timeout=left_s)
    connection.connect()
    cut = threading.Timer(left_s, _cut, (connection.sock,))
    cut.daemon = True
    cut.start()
    try:
        path = parts.path or "/"
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        connection.request("POST", f"{path}?{parts.query}" if parts.query else path, body, headers)
        response = connection.getresponse()
        answer = response.read(_RESPONSE_BYTES + 1)
        if len(answer) > _RESPONSE_BYTES:
            raise FusionError(f"the sandbox server answers more than {_RESPONSE_BYTES} bytes")
        return response.status, answer
    finally:
        cut.cancel()
        connection.close()


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
