"""How a program that a model wrote is kept apart from the machine.

Three ways, the first that works is taken, unless one is asked for by name:

- "bubblewrap": `bwrap` (`apt-get install bubblewrap`, `dnf install bubblewrap`).
- "namespaces": the same namespaces, made by this package. It warns once.
- "limits": resource limits and a system call filter alone. Never taken unless asked for by name.

In the first two a program sees an empty network, no process but its own, and a root directory with
Python's library, read-only; its only writable directory is empty, private, in memory and limited.
In all three it has no capability, a clean environment, and a uid other than root's; where this
process is root, a uid that no other program has. Whether that holds is not assumed: before a way
is used, a program that tries to break out is run in it.

Not kept apart by any: processor time and memory bandwidth, and the kernel itself. Memory in total
is watched rather than limited, see `code_runner`.
"""

import functools
import logging
import os
import shutil
import socket
import tempfile
import threading

from verl_msgrpo.rewards.code_launch import ENVIRONMENT, NAMES, PROCESSES, IsolationError
from verl_msgrpo.rewards.code_runner import Program, run

_logger = logging.getLogger(__name__)
_TRIAL_S = 30.0
_ADVICE = (
    "Install bubblewrap and allow user namespaces (or CAP_SYS_ADMIN), set sandbox_fusion_url, or "
    "accept the risk with isolation=limits"
)
_lock = threading.Lock()


def choose(wanted: str = "auto") -> str:
    """The name of a way that works here, "auto" for the best; raises IsolationError without one."""
    if wanted != "auto" and wanted not in NAMES:
        raise IsolationError(f"isolation={wanted!r} is none of auto, {', '.join(NAMES)}")
    with _lock:
        name, faults = _tried(wanted)
    if not name:
        raise IsolationError(f"{_reasons(faults)}; programs are not run. {_ADVICE}")
    return name


@functools.lru_cache
def _tried(wanted: str) -> tuple[str, dict[str, str]]:
    """The first way that works, "" if none does, and what is wrong with those before it."""
    faults: dict[str, str] = {}
    for name in NAMES[:2] if wanted == "auto" else (wanted,):
        fault = _fault(name)
        if not fault:
            _say(name, faults)
            return name, faults
        faults[name] = fault
    return "", faults


def _say(name: str, faults: dict[str, str]) -> None:
    if name == "namespaces" and faults:
        _logger.warning(
            "code_tests: %s; programs run in namespaces that this package makes. Not isolated: "
            "processor time, and the kernel itself",
            _reasons(faults),
        )
    elif name == "limits":
        own = "files that everybody may read, the list of processes, disk space"
        shared = f"all that user {os.geteuid()} may read, write or end, this process included"
        _logger.warning(
            "code_tests: isolation=limits, programs run under resource limits and a filter of "
            "system calls alone. NOT isolated: %s",
            own if os.geteuid() == 0 else shared,
        )


def _reasons(faults: dict[str, str]) -> str:
    return "; ".join(f"{name} does not work here ({fault})" for name, fault in faults.items())


def _fault(name: str) -> str:
    """Why programs cannot be run in this way, "" if they can: a program that tries has failed."""
    if name == "bubblewrap" and not shutil.which("bwrap"):
        return "bwrap is not installed"
    try:
        return _what_it_reaches(name)
    except (IsolationError, OSError) as error:
        return str(error)


def _what_it_reaches(name: str) -> str:
    """Runs the trial program; "" where it reaches nothing that it must not."""
    with (
        tempfile.NamedTemporaryFile() as file,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        os.chmod(file.name, 0o644)
        source = _BREAKOUT.format(
            file=file.name,
            port=server.getsockname()[1],
            environment=set(ENVIRONMENT),
            processes=PROCESSES,
            strict=name != "limits",
        )
        said: list[bytes] = []
        done = run(name, Program(source), ["7\n"], lambda _, output: said.append(output), _TRIAL_S)
    text = said[0].decode("utf-8", "replace").strip() if said else ""
    if text == "7 nothing":
        return ""
    return f"a trial program could reach: {text[2:]}" if text else f"a trial program failed: {done}"


# Runs inside. Prints its input, and what it could reach that it must not.
_BREAKOUT = """
import errno, os, socket, sys
sys.stdout.write(input() + " ")
found = []
if 0 in os.getresuid() or os.access("/", os.W_OK) or os.access(os.__file__, os.W_OK):
    found.append("root's files")
if {strict} and (os.path.exists({file!r}) or os.path.exists("/proc/self")):
    found.append("the machine's files")
if {strict} and os.getppid() != 1:
    found.append("other processes")
if set(os.environ) - {environment} - {{"LC_CTYPE", "PWD"}}:
    found.append("the environment")
for reach in (
    lambda: socket.create_connection(("127.0.0.1", {port}), 1),
    lambda: os.setresuid(0, 0, 0),
):
    try:
        reach()
    except OSError:
        continue
    found.append("the network or root")
children = 0
try:
    while children <= {processes} + 4:
        if os.fork() == 0:
            os.read(os.pipe()[0], 1)
        children += 1
    found.append("any number of processes")
except OSError:
    pass
if not os.path.samefile(os.getcwd(), os.environ["HOME"]) and {strict}:
    found.append("another directory")
with open("file", "w") as file:
    file.write("x")
print(", ".join(found) or "nothing")
"""
