"""The system calls that Python 3.11 has no function for. Each raises OSError where it fails."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_MNT_DETACH = 2

MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
# As /proc/self/mountinfo names them.
MOUNT_OPTIONS = {
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": 8,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
}

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags))
    _check(_libc.mount(*arguments, options.encode()), f"mount {target}")


def change_root(new: str, old: str) -> None:
    """pivot_root(2): makes the mount point `new` the root, with the old root at `old` in it."""
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    _check(_libc.syscall(number, new.encode(), old.encode()), "pivot_root")


def detach(target: str) -> None:
    """umount2(2), lazily."""
    _check(_libc.umount2(target.encode(), _MNT_DETACH), f"umount {target}")


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(flags), "unshare")


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants that lose theirs."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """Takes from this process what set-uid files would give it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Gives up all capabilities."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(ctypes.byref(header), (ctypes.c_uint32 * 6)()), "capset")


def install_filter(program: bytes) -> None:
    """Installs a seccomp filter, for this process and all that it starts."""
    pointer = ctypes.byref(_FilterProgram(len(program) // 8, program))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer)


def _prctl(option: int, *arguments: object) -> None:
    padded = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0, 0)]
    _check(_libc.prctl(option, *padded[:4]), f"prctl {option}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
