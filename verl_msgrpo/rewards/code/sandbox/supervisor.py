"""The first process of a sandbox: runs a program on each test, in a process of its own.

    python -I -S -c "..." ISOLATION UID MEMORY_BYTES PROCESSES

ISOLATION says who has made the sandbox: "bubblewrap", before this process began; "limits", nobody.
UID is the one to change to, "" to keep it.

Standard input: frames, each a length (4 bytes) and bytes: the prelude, the program, the name of the
function ("" for a script), then the input of each test. Standard output: READY, then a frame for
each test: what it printed or returned after a byte 1, or a byte 0 alone where it failed. This
process never learns what is expected.
"""

from __future__ import annotations

# The C half of `signal`: the other one imports enum and collections, a quarter of a sandbox's
# start. Nor is anything else imported here that a program may do without.
import _signal as signal
import gc
import os
import resource
import select
import sys
import types

from . import confine, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READY = b"ready\n"
RECURSION_LIMIT = 50_000  # what LiveCodeBench's own checker sets
_LENGTH_BYTES = 4
_READER_CHECK_S = 1.0


def main(arguments: Sequence[str]) -> None:
    """Confines this process and serves all tests; it ends here."""
    isolation, uid_text, memory_bytes, processes = arguments
    uid = int(uid_text) if uid_text else None
    if isolation == "limits":
        confine.adopt_orphans()
    else:
        confine.mount_work_directory(os.geteuid() if uid is None else uid)
    confine.limit_resources(int(memory_bytes), int(processes))
    confine.give_up_privileges(uid)
    if isolation != "limits":
        os.chdir(confine.WORK_DIRECTORY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reply = _only_for_me(1)
    os.write(reply, READY)
    # It has got rid of its other processes when it alone may kill all of its uid.
    alone = isolation != "limits" or uid is not None
    frames = _frames(_read_all(0))
    _Supervisor(reply, alone).serve(frames)


class _Supervisor:
    """Two files, for what a test reads and what it writes, and the pipe for replies."""

    def __init__(self, reply: int, alone: bool) -> None:
        self._reply, self._alone = reply, alone
        self._reader = select.poll()
        self._reader.register(reply, 0)  # hears of errors alone
        self._input, self._output = _unnamed_file(), _unnamed_file()
        # A signal at its parent's end would not get through the change of uid.
        signal.signal(signal.SIGALRM, self._end_without_reader)
        signal.setitimer(signal.ITIMER_REAL, _READER_CHECK_S, _READER_CHECK_S)
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)

    def serve(self, frames: Iterator[bytes]) -> None:
        """Runs all tests, then ends this process."""
        prelude_code, source, name = (next(frames).decode("utf-8", "replace") for _ in range(3))
        _like_a_script()
        prelude: dict[str, object] = {}
        exec(prelude_code, prelude)
        try:
            code = compile(source, "<program>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            os._exit(0)
        gc.freeze()  # so that no test's collection copies what all of them share
        for data in frames:
            fits = self._refill(b"" if name else data)
            child = os.fork() if fits else -1
            if child == 0:
                try:
                    self._become_test(code, prelude, name, data)
                finally:
                    os._exit(1)
            failed = not fits or os.waitpid(child, 0)[1] != 0
            _end_all(self._alone)
            printed = os.fstat(self._output).st_size
            if failed or printed > confine.OUTPUT_BYTES:
                _send(self._reply, b"\0")
            else:
                _send(self._reply, b"\1" + _read_at_most(self._output, printed))
        os._exit(0)

    def _end_without_reader(self, *_: object) -> None:
        """Ends the sandbox once the process that waits for the replies has gone."""
        if self._reader.poll(0):
            _end_all(self._alone)
            os._exit(1)

    def _refill(self, data: bytes) -> bool:
        """Whether the input could be written; the program may have filled the disk."""
        try:
            for number in (self._input, self._output):
                os.ftruncate(number, 0)
                os.lseek(number, 0, os.SEEK_SET)
            _write_all(self._input, data)
            os.lseek(self._input, 0, os.SEEK_SET)
        except OSError:
            return False
        return True

    def _become_test(
        self, code: types.CodeType, prelude: dict[str, object], name: str, data: bytes
    ) -> None:
        """Runs the program in this process, which ends here."""
        limit = (confine.OUTPUT_BYTES, confine.OUTPUT_BYTES)
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        returned = 3  # the only descriptor beyond the standard ones, for a function's value
        if name:
            os.dup2(self._output, returned)
        else:
            os.dup2(self._input, 0)
            os.dup2(self._output, 1)
        os.closerange(4 if name else 3, confine.OPEN_FILES)
        if name:
            arguments = data.decode("utf-8", "replace")
            _write_all(returned, program.call_function(code, prelude, name, arguments))
            os._exit(0)
        program.run_script(code, prelude)


def _like_a_script() -> None:
    """What `site` and LiveCodeBench's checker would have done."""
    import _sitebuiltins
    import builtins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.argv = ["solution.py"]


def _end_all(alone: bool) -> None:
    """Ends every process of the test. No fork escapes: the kernel signals all of them at once."""
    if alone:
        try:  # noqa: SIM105
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
    while True:
        try:
            if not alone:
                for child in _children():
                    os.kill(child, signal.SIGKILL)
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(number) for number in file.read().split()]


def _only_for_me(number: int) -> int:
    """The same pipe beyond the numbers that a test keeps."""
    copy = os.dup(number)
    while copy <= 3:
        copy = os.dup(number)
    return copy


def _unnamed_file() -> int:
    """A file in the working directory that no path leads to, beyond the numbers a test keeps."""
    number = _only_for_me(os.open("unnamed", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink("unnamed")
    return number


def _frames(data: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(data):
        end = begin + _LENGTH_BYTES
        length = int.from_bytes(data[begin:end], "little")
        yield data[end : end + length]
        begin = end + length


def _send(number: int, payload: bytes) -> None:
    _write_all(number, len(payload).to_bytes(_LENGTH_BYTES, "little") + payload)


def _write_all(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(number, rest) :]


def _read_all(number: int) -> bytes:
    pieces = []
    while piece := os.read(number, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def _read_at_most(number: int, size: int) -> bytes:
    pieces, at = [], 0
    while at < size and (piece := os.pread(number, size - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)
