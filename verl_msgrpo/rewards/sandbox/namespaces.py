"""Moves this process into namespaces of its own, for machines without bubblewrap.

New PID, network, mount, IPC and UTS namespaces, in a new user namespace unless this process may do
without, and a root directory that holds nothing but the paths named, read-only.
"""

from __future__ import annotations

import os

from . import kernel
from .confine import WORK_DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
INNER_UID = 65534
_BASE = "/tmp"  # a directory that every machine has; only covered in the new mount namespace
_OLD = "/.old"


def enter(paths: Sequence[str], *, user_namespace: bool) -> None:
    """Returns in a new process, the first of the PID namespace; the old one waits for it and exits.

    paths: files and directories that the new root shows, each where it is; those missing are left
        out.
    user_namespace: whether to become INNER_UID of a new user namespace. Otherwise the caller needs
        CAP_SYS_ADMIN.
    """
    uid, gid = os.geteuid(), os.getegid()
    flags = kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWNS
    flags |= kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    kernel.unshare(flags | (kernel.CLONE_NEWUSER if user_namespace else 0))
    if user_namespace:
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{INNER_UID} {uid} 1"),
            ("gid_map", f"{INNER_UID} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    child = os.fork()
    if child:
        for number in (0, 1):
            os.close(number)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    _new_root(paths)


def _new_root(paths: Sequence[str]) -> None:
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _BASE, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=0755")
    os.mkdir(_BASE + _OLD)
    kernel.change_root(_BASE, _BASE + _OLD)
    os.chdir("/")
    for path in (*paths, *DEVICES):
        if os.path.exists(_OLD + path):
            _show(path)
    os.makedirs(WORK_DIRECTORY, exist_ok=True)
    with open(f"{_OLD}/proc/self/mountinfo") as file:
        mounts = [line.split(" ")[4:6] for line in file]
    for point, options in mounts:
        point = point.encode().decode("unicode_escape")
        if point != _OLD and not point.startswith(_OLD + "/"):
            _make_read_only(point, options.split(","))
    kernel.detach(_OLD)


def _show(path: str) -> None:
    if os.path.isdir(_OLD + path):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w"):
            pass
    kernel.mount(_OLD + path, path, "", kernel.MS_BIND | kernel.MS_REC)


def _make_read_only(point: str, options: Sequence[str]) -> None:
    flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
    flags |= 0 if point in DEVICES else kernel.MS_NODEV
    for option in options:  # those that the mount has may be locked, so they are kept
        flags |= kernel.MOUNT_OPTIONS.get(option, 0)
    kernel.mount("none", point, "", flags)
