"""Runs a program on tests in a sandbox of its own, and keeps its limits from outside.

The sandbox is told the inputs and nothing else. What the program printed or returned comes back,
to be judged in this process. All of the sandbox's processes have ended when `run` returns.

A program finds the names that it would have in LiveCodeBench's checker without importing them, see
`prelude`.
"""

import builtins
import contextlib
import functools
import importlib
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from verl_msgrpo.rewards.code.sandbox.confine import OUTPUT_BYTES
from verl_msgrpo.rewards.code.sandbox.supervisor import READY

# Starting takes some 50 ms, on a busy machine much longer; it is not the program's time.
_START_S = 30.0
_WATCH_S = 0.05
_FAREWELL_S, _END_S = 1.0, 10.0
_MESSAGE_BYTES = 4000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Of the sandbox itself, and of pages that processes share and that are counted for each.
_OWN_MEMORY_BYTES = 128 << 20
# In this order, as later names hide earlier ones (LiveCodeBench, lcb_runner/evaluation).
_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json", "typing"),
)
_WORD = re.compile(r"[A-Za-z_]\w*")


class IsolationError(RuntimeError):
    """Programs cannot be run safely here; the message says why, and what to do."""


@dataclass(frozen=True)
class SandboxStart:
    """How to start a sandbox.

    memory_bytes: what each of its processes may address, and all of them may use.
    start_as: the uid to start it as, None for this process's.
    owner: the uid that its working directory has to belong to, None for this process's.
    needs_directory: whether it has to be given one, and does not make its own.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    memory_bytes: int
    start_as: int | None = None
    owner: int | None = None
    needs_directory: bool = False


class Program(NamedTuple):
    """Python source; the name of the function to call, "" for a script; what runs before it."""

    source: str
    function: str = ""
    prelude: str = ""


class End(NamedTuple):
    """How a run ended: at its time limit, over its memory."""

    timeout: bool = False
    memory: bool = False


def run(
    start: SandboxStart,
    program: Program,
    inputs: Sequence[str],
    judge: Callable[[int, bytes], None],
    limit_s: float,
) -> End:
    """Runs a program once for each input, in order, until the limit.

    Args:
        start: a sandbox of a way that works here, see `isolation`.
        program: what to run.
        inputs: what each test reads, or the JSON arguments of its call, one a line.
        judge: called with a test's number and what it printed or returned, if it ended well.
        limit_s: seconds for all tests together.

    Raises IsolationError where the sandbox does not start.
    """
    frames = [program.prelude, program.source, program.function, *inputs]
    request = b"".join(_frame(text.encode("utf-8", "replace")) for text in frames)
    with _directory(start) as directory, _started(start, directory) as process:
        wait_s = 0.0
        try:
            end = _Talk(process, request, judge, len(inputs)).until(limit_s, start.memory_bytes)
            wait_s = 0.0 if end.timeout or end.memory else _FAREWELL_S
            return end
        finally:
            _end(process, wait_s)


def prelude(source: str) -> str:
    """Import statements for the names that occur in a program.

    Solutions to LeetCode's tasks are written for an environment with `List`, `deque`, `heapq`,
    `inf` and their like. Importing all of it takes longer than a sandbox does to start.
    """
    table = _table()
    return "".join(table[word] for word in sorted(set(_WORD.findall(source)) & table.keys()))


@functools.cache
def _table() -> dict[str, str]:
    """The import statement for each name."""
    table: dict[str, str] = {}
    for name in _MODULES:
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or vars(module)
        table.update(
            {word: f"from {name} import {word}\n" for word in public if not word.startswith("_")}
        )
    for word in vars(builtins):
        table.pop(word, None)
    return table | {name: f"import {name}\n" for name in _MODULES}


class _Talk:
    """The exchange with one sandbox; neither side can make the other wait."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        request: bytes,
        judge: Callable[[int, bytes], None],
        tests: int,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._judge, self._tests = process, judge, tests
        self._input = process.stdin.fileno()
        self._output = process.stdout.fileno()
        self._errors = process.stderr.fileno()
        self._rest = memoryview(request)
        self._received, self._message = bytearray(), b""
        self._ready, self._done = False, 0
        self._poll = select.poll()
        for number, event in (
            (self._input, select.POLLOUT),
            (self._output, select.POLLIN),
            (self._errors, select.POLLIN),
        ):
            os.set_blocking(number, False)
            self._poll.register(number, event)

    def until(self, limit_s: float, memory_bytes: int) -> End:
        """Talks until all tests are done, the sandbox ends, or a limit is reached."""
        deadline = time.monotonic() + _START_S
        watch = time.monotonic() + _WATCH_S
        while self._done < self._tests:
            now = time.monotonic()
            if now >= deadline:
                if not self._ready:
                    raise IsolationError(f"the sandbox did not start within {_START_S:g} s")
                return End(timeout=True)
            if now >= watch:
                used = sum(resident_bytes(self._process.pid).values())
                if used > memory_bytes + _OWN_MEMORY_BYTES:
                    return End(memory=True)
                watch = time.monotonic() + _WATCH_S
            was_ready = self._ready
            if not self._step(max(min(deadline, watch) - time.monotonic(), 0)):
                break
            if self._ready and not was_ready:
                deadline = time.monotonic() + limit_s
        return End()

    def _step(self, wait_s: float) -> bool:
        """Moves what can be moved; False once the sandbox has ended."""
        for number, event in self._poll.poll(wait_s * 1000):
            if number == self._input:
                self._write(event)
            elif data := _read(number):
                if number == self._errors:
                    self._message = (self._message + data)[:_MESSAGE_BYTES]
                elif not self._take(data):
                    return False
            elif number == self._errors:
                self._poll.unregister(number)
            elif self._ready:
                return False
            else:
                self._process.wait(_END_S)
                self._message += _read(self._errors)[:_MESSAGE_BYTES]
                lines = self._message.decode("utf-8", "replace").strip().splitlines()
                raise IsolationError(lines[-1] if lines else "the sandbox ended at once")
        return True

    def _write(self, event: int) -> None:
        try:
            if event & select.POLLOUT:
                self._rest = self._rest[os.write(self._input, self._rest) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._rest = self._rest[:0]
        if not self._rest or event & (select.POLLERR | select.POLLHUP):
            self._poll.unregister(self._input)
            assert self._process.stdin
            self._process.stdin.close()

    def _take(self, data: bytes) -> bool:
        """Reads the frames that are complete; False where they are none."""
        self._received += data
        if not self._ready:
            if not READY.startswith(self._received[: len(READY)]):
                raise IsolationError(f"the sandbox said {bytes(self._received[:200])!r}")
            if len(self._received) < len(READY):
                return True
            del self._received[: len(READY)]
            self._ready = True
        while len(self._received) >= 4 and self._done < self._tests:
            length = int.from_bytes(self._received[:4], "little")
            if not 1 <= length <= OUTPUT_BYTES + 1:
                return False
            if len(self._received) < 4 + length:
                break
            if self._received[4] == 1:
                self._judge(self._done, bytes(self._received[5 : 4 + length]))
            del self._received[: 4 + length]
            self._done += 1
        return True


def resident_bytes(pid: int) -> dict[int, int]:
    """The living descendants of a process, and the memory that each of them holds."""
    found: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child in _children(parent):
            waiting.append(child)
            with contextlib.suppress(OSError, IndexError):
                with open(f"/proc/{child}/statm") as file:
                    resident = int(file.read().split()[1]) * _PAGE_BYTES
                if resident:  # none: it has ended
                    found[child] = resident
    return found


def _children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found += [int(number) for number in file.read().split()]
    return found


def _started(start: SandboxStart, directory: str) -> subprocess.Popen[bytes]:
    home = {"HOME": directory, "TMPDIR": directory} if start.needs_directory else {}
    try:
        return subprocess.Popen(
            start.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**start.environment, **home},
            cwd=directory,
            start_new_session=True,
            user=start.start_as,
            group=start.start_as,
            extra_groups=None if start.start_as is None else [],
        )
    except OSError as error:
        raise IsolationError(f"cannot start {start.command[0]}: {error}") from None


@contextlib.contextmanager
def _directory(start: SandboxStart) -> Iterator[str]:
    """The directory to start in."""
    if not start.needs_directory:
        yield "/"
        return
    with tempfile.TemporaryDirectory(prefix="code_tests_", ignore_cleanup_errors=True) as path:
        if start.owner is not None:
            os.chown(path, start.owner, start.owner)
        yield path


def _end(process: subprocess.Popen[bytes], wait_s: float) -> None:
    """Ends a sandbox and waits until none of its processes is left.

    wait_s: seconds in which it may end by itself.
    """
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    if process.returncode is None:
        process.send_signal(signal.SIGSTOP)  # so that it starts no other
        deadline = time.monotonic() + _END_S
        while (living := resident_bytes(process.pid)) and time.monotonic() < deadline:
            for pid in living:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        process.kill()
    process.wait()


def _read(number: int) -> bytes:
    try:
        return os.read(number, 1 << 20)
    except BlockingIOError:
        return b""


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data
