"""Takes from a process all that a program under test must not have. There is no way back."""

import os
import resource

from . import kernel, seccomp

OUTPUT_BYTES = 16 << 20
OPEN_FILES = 64
WORK_DIRECTORY = "/box"
WORK_BYTES, WORK_FILES = 256 << 20, 4096
STACK_BYTES = 64 << 20


def mount_work_directory(uid: int) -> None:
    """An empty directory in memory, limited in bytes and files: the only one that is writable."""
    options = f"size={WORK_BYTES},nr_inodes={WORK_FILES},mode=0700,uid={uid},gid={uid}"
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", WORK_DIRECTORY, "tmpfs", flags, options)


def limit_resources(memory_bytes: int, processes: int) -> None:
    """Hard limits, for this process and all that it starts.

    processes: how many its uid may have, threads included; it does not bind uid 0.
    """
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_STACK: STACK_BYTES,
        resource.RLIMIT_CORE: 1,  # with 0 a handler in core_pattern would still be started
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 256,
    }
    for which, wanted in limits.items():
        ceiling = resource.getrlimit(which)[1]
        limit = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
        resource.setrlimit(which, (limit, limit))


def give_up_privileges(uid: int | None) -> None:
    """Leaves no capability, no system call that is refused, and `uid` where one is given."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()
    kernel.no_new_privileges()
    kernel.install_filter(seccomp.bpf_program(os.uname().machine))
    if 0 in os.getresuid():
        raise PermissionError("still uid 0, which no limit on processes binds")
