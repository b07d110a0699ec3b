"""The process that checks mathematical answers: `python -m verl_msgrpo.rewards.math.worker FD PID`.

It is a keeper and its child. The child checks; the keeper kills it at the time limit and forks the
next one within milliseconds, because math-verify is loaded already. The keeper never computes, so
it always sees when the process that started it (PID) closes the socket FD or is gone; the child
dies with the keeper.

Messages: JSON in bytes. First the keeper says {"ready": true}, then it answers each
{"golds": [...], "answer": "...", "limit_s": 5.0} by {"equal": ..., "timeout": ..., "error": "..."}.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection, Pipe, wait

from verl_msgrpo.rewards.math.equal import UnreadableError, equal_answers

MEMORY_BYTES = 1 << 30
# A child keeps what sympy and the parser cache; a fork is cheaper than asking what it holds.
_CHECKS_A_CHILD = 2000
# Of the limit: the rest is for the kill and the next child, so that others wait no longer than it.
_OWN_SHARE = 0.95
_PARENT_CHECK_S = 2.0
_PR_SET_PDEATHSIG = 1
_TIMED_OUT = b'{"equal": false, "timeout": true}'
_DIED = b'{"equal": false, "error": "the checking process died"}'
_BROKEN = (_TIMED_OUT, _DIED)


class _Child:
    """The process that checks."""

    def __init__(self, keeper: Connection) -> None:
        self.connection, inner = Pipe()
        keeper_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() == keeper_pid:
                    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
                    keeper.close()
                    self.connection.close()
                    _check_for_ever(inner)
            finally:
                os._exit(1)
        inner.close()

    def ask(self, request: bytes, parent: Connection, deadline: float) -> bytes:
        """The reply to a request; EOFError when the parent has gone away."""
        try:
            self.connection.send_bytes(request)
            ready = wait([self.connection, parent], max(deadline - time.monotonic(), 0))
            if self.connection in ready:
                return self.connection.recv_bytes()
        except (EOFError, OSError):
            return _DIED
        if parent in ready:  # nothing is sent while a check runs
            raise EOFError
        return _TIMED_OUT

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.connection.close()


def keep(parent: Connection, parent_pid: int) -> None:
    """Serves until the parent closes the connection or is gone."""
    equal_answers(r"\frac{1}{2}+\sqrt{2}", r"(0.5, x=3)")  # loads tables that children share
    child, checks = _Child(parent), 0
    try:
        parent.send_bytes(json.dumps({"ready": True}).encode())
        while True:
            while not parent.poll(_PARENT_CHECK_S):
                if os.getppid() != parent_pid:
                    return
            request = parent.recv_bytes()
            deadline = time.monotonic() + _OWN_SHARE * json.loads(request)["limit_s"]
            for attempt in (1, 2):  # the first child may have been ended by others before
                reply = child.ask(request, parent, deadline)
                checks += 1
                if reply in _BROKEN or checks >= _CHECKS_A_CHILD:
                    old, child, checks = child, _Child(parent), 0
                    old.kill()
                if reply != _DIED or attempt == 2:
                    break
            parent.send_bytes(reply)
    except (EOFError, OSError):
        pass  # the parent is done
    finally:
        child.kill()


def _check_for_ever(connection: Connection) -> None:
    while True:
        request = json.loads(connection.recv_bytes())
        reply: dict[str, bool | str] = {}
        try:
            reply["equal"] = any(equal_answers(g, request["answer"]) for g in request["golds"])
        except UnreadableError as error:
            reply = {"equal": False, "error": f"the ground truth cannot be compared: {error}"}
        except Exception as error:
            reply = {"equal": False, "error": type(error).__name__}
        connection.send_bytes(json.dumps(reply).encode())


def main() -> None:
    """Runs the keeper."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keeper_socket = socket.socket(fileno=int(sys.argv[1]))
    keep(Connection(keeper_socket.detach()), int(sys.argv[2]))


if __name__ == "__main__":
    main()
