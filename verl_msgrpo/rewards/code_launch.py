"""The commands that start a sandbox, one for each way of isolation.

A sandbox shows Python, its library and installed packages, and the system's shared libraries, all
read-only, and one writable directory of its own.
"""

import os
import platform
import secrets
import shutil
import site
import sys
from dataclasses import dataclass
from pathlib import Path

from verl_msgrpo.rewards import sandbox
from verl_msgrpo.rewards.sandbox.confine import WORK_DIRECTORY
from verl_msgrpo.rewards.sandbox.namespaces import DEVICES, INNER_UID

NAMES = ("bubblewrap", "namespaces", "limits")
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


class IsolationError(RuntimeError):
    """Programs cannot be run safely here; the message says why, and what to do."""


@dataclass(frozen=True)
class Launch:
    """How to start a sandbox.

    start_as: the uid to start it as, None for this process's.
    owner: the uid that its working directory has to belong to, None for this process's.
    needs_directory: whether it has to be given one, and does not make its own.
    """

    command: list[str]
    start_as: int | None
    owner: int | None
    needs_directory: bool


def launch(name: str, memory_bytes: int) -> Launch:
    """How to start a sandbox of a kind for one program.

    memory_bytes: what each of its processes may address.
    Raises IsolationError where the sandbox could not read this Python.
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
        command = [*_python(str(_SANDBOX.parent)), *settings, *visible_paths()]
    return Launch(command, start_as, owner=inside, needs_directory=name == "limits")


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
        command += ["--unshare-user", "--uid", str(INNER_UID), "--gid", str(INNER_UID)]
    else:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    binds = [("--ro-bind-try", path, path) for path in visible_paths()]
    binds += [("--ro-bind", str(_SANDBOX), _SEEN)]
    binds += [("--dev-bind-try", device, device) for device in DEVICES]
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
