"""How a program that a model wrote is kept apart from the machine, and how to start it so.

Two ways on this machine, and a third on another, a Sandbox Fusion server (`fusion`):

- "bubblewrap": `bwrap` (`apt install bubblewrap`, `dnf install bubblewrap`). It is what "auto"
  stands for: where it does not work no program is run.
- "limits": resource limits and a system call filter alone. Never taken unless asked for by name.

By bubblewrap a program sees an empty network, no process but its own, and a root directory with
Python, its library and installed packages, and the system's shared libraries, read-only; its only
writable directory is empty, private, in memory and limited. In both it has no capability, a clean
environment, and a uid other than root's; where this process is root, a uid that no other program
has. Whether that holds is not assumed: before a way is used, a program that tries to break out is
run in it.

Not kept apart by either: processor time and memory bandwidth, and the kernel itself. Memory in
total is watched rather than limited, see `runner`.
"""

import functools
import logging
import os
import platform
import secrets
import shutil
import site
import socket
import sys
import tempfile
import threading
from pathlib import Path

from verl_msgrpo.common.numbers import not_allowed
from verl_msgrpo.common.once import say_once
from verl_msgrpo.rewards.code import sandbox
from verl_msgrpo.rewards.code.runner import IsolationError, Program, SandboxStart, run
from verl_msgrpo.rewards.code.sandbox.confine import WORK_DIRECTORY

WAYS = ("bubblewrap", "limits")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
MEMORY_MB = 1024
# A program needs one; some use a thread for a deeper stack, and numpy a few.
PROCESSES = 16
_CAP_SYS_ADMIN = 1 << 21
_SANDBOX = Path(sandbox.__file__).parent
_SEEN = "/run/sandbox"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": WORK_DIRECTORY,
    "TMPDIR": WORK_DIRECTORY,
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_INNER_UID = 65534
_logger = logging.getLogger(__name__)
_TRIAL_S = 30.0
_NOT_INSTALLED = "it is not installed: apt install bubblewrap"
_lock = threading.Lock()


def choose(wanted: str = "auto") -> str:
    """The name of a way that works here, "auto" for bubblewrap.

    Raises:
        IsolationError: there is no such way, or it does not work here.
    """
    if wanted != "auto" and wanted not in WAYS:
        gone = "; namespaces is gone: apt install bubblewrap" if wanted == "namespaces" else ""
        error = not_allowed("isolation", "auto, bubblewrap or limits", wanted)
        raise IsolationError(f"{error}{gone}")
    name = "bubblewrap" if wanted == "auto" else wanted
    with _lock:
        fault = _fault(name)
    if fault:
        raise IsolationError(_not_run(name, fault))
    if name == "limits":
        message = "code_tests: isolation=limits, so programs are %s"
        say_once(_logger, logging.WARNING, message, _limits_in_force())
    return name


def in_force(wanted: str = "auto", sandbox_fusion_url: str | None = None) -> str:
    """What keeps programs apart with these settings of `code_tests`, in one line; never raises."""
    if sandbox_fusion_url:
        return f"run on the Sandbox Fusion server {sandbox_fusion_url}"
    try:
        name = choose(wanted)
    except IsolationError as error:
        return str(error)
    return _limits_in_force() if name == "limits" else f"isolated by {name}"


def warn_without_bubblewrap() -> None:
    """Says once in a process what is in force where bubblewrap is not installed; tries nothing."""
    if not shutil.which("bwrap"):
        message = "code_tests: %s"
        say_once(_logger, logging.WARNING, message, _not_run("bubblewrap", _NOT_INSTALLED))


def _not_run(name: str, fault: str) -> str:
    said = f"programs are not run: isolation={name} does not work here ({fault})"
    if name == "limits":
        return said
    if fault != _NOT_INSTALLED:
        said += "; allow user namespaces, or CAP_SYS_ADMIN"
    return (
        f"{said}; or set sandbox_fusion_url, or isolation=limits, which does NOT isolate "
        f"{_open_to_limits()}"
    )


def _limits_in_force() -> str:
    return (
        "run under resource limits and a filter of system calls alone, NOT isolated from "
        f"{_open_to_limits()}; for isolation: apt install bubblewrap, isolation=auto"
    )


def _open_to_limits() -> str:
    """What limits alone do not protect."""
    if os.geteuid() == 0:
        return "files that everybody may read, the list of processes, disk space"
    return f"all that user {os.geteuid()} may read, write or end, this process included"


@functools.cache
def _fault(name: str) -> str:
    """Why programs cannot be run in this way, "" if they can: a program that tries has failed."""
    if name == "bubblewrap" and not shutil.which("bwrap"):
        return _NOT_INSTALLED
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
        start = launch(name, MEMORY_MB << 20)
        done = run(start, Program(source), ["7\n"], lambda _, output: said.append(output), _TRIAL_S)
    text = said[0].decode("utf-8", "replace").strip() if said else ""
    if text == "7 nothing":
        return ""
    return f"a trial program could reach: {text[2:]}" if text else f"a trial program failed: {done}"


def launch(name: str, memory_bytes: int) -> SandboxStart:
    """How to start a sandbox of a kind for one program.

    Args:
        name: one of `WAYS`.
        memory_bytes: what each of its processes may address, and all of them may use.

    Raises:
        IsolationError: the sandbox could not read this Python.
    """
    root, administrator = os.geteuid() == 0, _may_mount()
    uid = _unused_uid() if root else None
    # Whoever may not mount needs a user namespace, and there root's limit on processes is none:
    # root starts it as somebody else.
    inside = uid if root and (administrator or name == "limits") else None
    start_as = uid if root and inside is None else None
    if start_as is not None or (root and name == "limits"):
        _check_readable(sys.base_prefix)
    processes = PROCESSES + (0 if root else _processes_counted(name))
    settings = [name, str(inside) if inside else "", str(memory_bytes), str(processes)]
    if name == "bubblewrap":
        bubblewrap = _bubblewrap(user_namespace=inside is None)
        command = [*bubblewrap, *_python(os.path.dirname(_SEEN)), *settings]
    else:
        command = [*_python(str(_SANDBOX.parent)), *settings]
    return SandboxStart(command, ENVIRONMENT, memory_bytes, start_as, inside, name == "limits")


def visible_paths() -> list[str]:
    """What a program may read, none of it inside another; not all of it may exist."""
    system = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache")
    paths = dict.fromkeys((sys.base_prefix, *_packages(), *system))
    return [path for path in paths if not any(str(above) in paths for above in Path(path).parents)]


def _check_readable(path: str) -> None:
    """Raises IsolationError unless everybody may read a directory."""
    for part in (Path(path), *Path(path).parents):
        if not part.stat().st_mode & 0o001:
            raise IsolationError(
                f"Python lies in {path}, and {part} is closed to other users: make it readable "
                "(chmod o+rx), or use a Python that everybody can read"
            )


def _bubblewrap(*, user_namespace: bool) -> list[str]:
    bwrap = shutil.which("bwrap") or "bwrap"
    command = [bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--die-with-parent", "--as-pid-1", "--new-session", "--cap-drop", "ALL"]
    command += ["--cap-add", "CAP_SYS_ADMIN"]  # until the work directory is there
    if user_namespace:
        command += ["--unshare-user", "--uid", str(_INNER_UID), "--gid", str(_INNER_UID)]
    else:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    binds = [("--ro-bind-try", path, path) for path in visible_paths()]
    binds += [("--ro-bind", str(_SANDBOX), _SEEN)]
    binds += [("--dev-bind-try", device, device) for device in _DEVICES]
    # Its own directories above them would be closed to all but their owner.
    above = {str(parent) for _, _, path in binds for parent in Path(path).parents}
    for directory in (*sorted(above - {"/"}), WORK_DIRECTORY):
        command += ["--dir", directory]
    command += [word for bind in binds for word in bind]
    return [*command, "--remount-ro", "/", "--chdir", "/", "--"]


def _python(directory: str) -> list[str]:
    """Python without site, with the package `sandbox` from a directory."""
    packages = f"sys.path += {_packages()!r}; " if _packages() else ""
    code = (
        f"import sys; sys.path.append({directory!r}); from sandbox import supervisor; "
        f"sys.path.pop(); {packages}supervisor.main(sys.argv[1:])"
    )
    # In a virtual environment, the interpreter that it was made from.
    executable = getattr(sys, "_base_executable", None) or sys.executable
    return [os.path.realpath(executable), "-I", "-S", "-X", "utf8", "-c", code]


def _packages() -> list[str]:
    return [path for path in site.getsitepackages() if os.path.isdir(path)]


def _may_mount() -> bool:
    status = Path("/proc/self/status").read_text()
    effective = status.partition("CapEff:")[2].split()[0]
    return os.geteuid() == 0 and bool(int(effective, 16) & _CAP_SYS_ADMIN)


def _unused_uid() -> int:
    """A uid that nothing else runs as, so that its processes are counted alone."""
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    begin, _, length = max(([int(word) for word in line] for line in ranges), key=lambda r: r[2])
    end = min(begin + length, 1 << 31)
    first = max(begin, end // 2)
    return first + secrets.randbelow(end - first)


def _processes_counted(name: str) -> int:
    """Processes of this user that the kernel counts against the limit of a sandbox.

    Since Linux 5.14 they are counted for each user namespace.
    """
    major, minor = (int(number) for number in platform.release().split(".")[:2])
    if name != "limits" and (major, minor) >= (5, 14):
        return 0
    return sum(_threads(path) for path in Path("/proc").iterdir() if path.name.isdigit())


def _threads(process: Path) -> int:
    try:
        if process.stat().st_uid != os.geteuid():
            return 0
        return int((process / "status").read_text().partition("Threads:")[2].split()[0])
    except (OSError, IndexError):
        return 0


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
