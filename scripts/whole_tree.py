"""Runs a command and ends with it all that it started, detached processes too.

    python3 scripts/whole_tree.py COMMAND [ARGUMENT ...]

Ray's daemons leave the process group, and a shell that is killed leaves its children behind. Here
the kernel makes every orphan among our descendants our child (PR_SET_CHILD_SUBREAPER), so the list
of descendants is whole, and nothing has to be looked for by name.

What is left when the command ends has LEFT_S to end too. On Ctrl-C, SIGTERM or SIGHUP the command's
processes are interrupted as Ctrl-C does it and have GRACE_S; a second signal cuts that short. Then
they are killed. The exit code is the command's; after a signal we end by that signal ourselves.

Standard library only, and any Python from 3.8 on: this runs before there is an environment.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import time

GRACE_S = 30.0  # verl ends Ray, and Ray its workers: seconds, more on a busy machine
LEFT_S = 10.0
UNKILLABLE_S = 60.0  # until we give up on what does not end when it is killed
SAME_SIGNAL_S = 1.0  # `timeout` sends its signal to us and then to our process group
POLL_S = 0.1
PR_SET_CHILD_SUBREAPER = 36
NOT_FOUND = 127
SHOWN = 10


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    if sys.platform != "linux":  # what needs Linux says so itself
        os.execvp(sys.argv[1], sys.argv[1:])
    code, received = run(sys.argv[1:])
    if received is not None:  # so that a shell that called us sees it and stops as well
        signal.signal(received, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {received})
        os.kill(os.getpid(), received)
    return code


def run(command: list[str]) -> tuple[int, int | None]:
    """Returns the command's exit code (128 + n if signal n ended it), and the signal that we got.

    None of its processes is left then.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    watched = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup leaves it
        watched.add(signal.SIGHUP)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    environment = {**os.environ, "WHOLE_TREE": str(os.getpid())}
    try:
        # A background job of a script ignores SIGINT, and so would all that it starts.
        child = os.posix_spawnp(
            command[0], command, environment, setsigmask=mask, setsigdef=[signal.SIGINT]
        )
    except OSError as error:
        print(f"whole_tree.py: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND, None

    code, first = 1, None
    first_at = kill_at = killed_at = math.inf  # monotonic, in seconds
    while True:
        ended = reap(child)
        now = time.monotonic()
        if ended is not None:
            code, kill_at = ended, min(kill_at, now + LEFT_S)
        left = descendants(os.getpid())
        if not left or now > killed_at + UNKILLABLE_S:
            return code, first
        if now >= kill_at:
            if killed_at == math.inf:
                killed_at = now
                names = ", ".join(f"{name_of(pid)} ({pid})" for pid in left[:SHOWN])
                print(f"whole_tree.py: killing {len(left)} left: {names}", file=sys.stderr)
            send(signal.SIGKILL, left)
        # Until there is an end in sight, nothing changes without a signal.
        wait_s = POLL_S if kill_at < math.inf else 3600.0
        received = signal.sigtimedwait(watched, wait_s)
        if received is None or received.si_signo == signal.SIGCHLD:
            continue
        now = time.monotonic()
        if first is None:
            first, first_at, kill_at = received.si_signo, now, min(kill_at, now + GRACE_S)
            if first != signal.SIGINT:  # which the terminal sends to the whole group
                send(signal.SIGINT, list(filter(in_our_group, descendants(os.getpid()))))
        elif now > first_at + SAME_SIGNAL_S:
            kill_at = now


def descendants(root: int) -> list[int]:
    """The process ids of all that is below `root`."""
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                stat = file.read()
        except OSError:  # it has ended since
            continue
        # The name, in parentheses, may hold anything; state and parent come after it.
        parent = int(stat.rpartition(b")")[2].split()[1])
        children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    new = [root]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return found


def reap(command: int) -> int | None:
    """Buries children that have ended; returns the command's exit code if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == command:
            killed = os.WIFSIGNALED(status)
            code = 128 + os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)


def send(number: int, pids: list[int]) -> None:
    """Sends a signal to those that are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def in_our_group(pid: int) -> bool:
    """Whether Ctrl-C in our terminal would reach the process."""
    try:
        return os.getpgid(pid) == os.getpgrp()
    except ProcessLookupError:
        return False


def name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "?"


if __name__ == "__main__":
    raise SystemExit(main())
