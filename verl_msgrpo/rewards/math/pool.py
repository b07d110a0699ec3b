"""Warm processes that check mathematical answers, with a limit that always holds.

A check takes a process of the pool for itself. One that exceeds its time or memory is killed and
replaced, see `worker`; other checks wait for a free process, never for an unlimited one. The
processes start at the first check, are shared by all threads, and end with this process, however
it ends.
"""

import atexit
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import verl_msgrpo

WORKERS = 2
# Loading sympy takes a second or two, on a busy machine much longer.
_START_S = 120.0
# The worker itself keeps the limit; this is how long it may take to say so.
_GRACE_S = 20.0


class Verdict(NamedTuple):
    """The result of a check; `error` is "" or says why there is none."""

    equal: bool
    timeout: bool = False
    error: str = ""


class _Worker:
    """One keeper process, started at once, waited for when it is first used."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        root = str(Path(verl_msgrpo.__file__).parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-P", "-m", "verl_msgrpo.rewards.math.worker"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        self._ready = False

    def check(self, golds: list[str], answer: str, limit_s: float) -> Verdict:
        """Raises OSError or EOFError where the process is gone."""
        if not self._ready:
            self._receive(_START_S)
            self._ready = True
        request = {"golds": golds, "answer": answer, "limit_s": limit_s}
        self._connection.send_bytes(json.dumps(request).encode())
        return Verdict(**self._receive(limit_s + _GRACE_S))

    def _receive(self, limit_s: float) -> dict:
        if not self._connection.poll(limit_s):
            raise TimeoutError(f"a math worker did not reply within {limit_s:g} s")
        return json.loads(self._connection.recv_bytes())

    def close(self, wait_s: float = 5.0) -> None:
        """Ends the process, and its child with it."""
        self._connection.close()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class MathPool:
    """`size` workers, taken in turn by any thread."""

    def __init__(self, size: int = WORKERS) -> None:
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._workers = [_Worker() for _ in range(size)]
        for worker in self._workers:
            self._idle.put(worker)
        self._lock = threading.Lock()
        self._closed = False

    def check(self, golds: list[str], answer: str, limit_s: float) -> Verdict:
        """Whether the answer equals one of the golds; never raises, never waits for ever.

        limit_s: seconds that the check may take; waiting for a free worker is not part of it.
        """
        worker = self._idle.get()
        try:
            for last_try in (False, True):
                try:
                    return worker.check(golds, answer, limit_s)
                except BaseException as error:
                    worker = self._replace(worker)  # it may still owe a reply
                    if not isinstance(error, Exception):
                        raise
                    # An answer cannot end a worker, so a worker that is gone was ended by others.
                    if last_try or not isinstance(error, EOFError | ConnectionError):
                        return Verdict(False, error=f"math worker: {error!r}")
        finally:
            self._idle.put(worker)
        raise AssertionError("unreachable")

    def _replace(self, worker: _Worker) -> _Worker:
        worker.close(wait_s=0)
        with self._lock:
            if self._closed:
                return worker
            fresh = _Worker()
            self._workers[self._workers.index(worker)] = fresh
            return fresh

    def close(self) -> None:
        """Ends all workers; checks that still run come back with an error."""
        with self._lock:
            self._closed = True
            workers = list(self._workers)
        for worker in workers:
            worker.close()


_pool: MathPool | None = None
_pool_lock = threading.Lock()


def shared_pool(size: int = WORKERS) -> MathPool:
    """The pool of this process, started by the first call, which alone chooses its size."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = MathPool(size)
            atexit.register(_pool.close)
        return _pool


def _forget_pool() -> None:
    """A forked process must not talk to the workers of its parent."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_pool)
