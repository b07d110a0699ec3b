"""Takes from a process all that a program under test must not have. There is no way back.

First the working directory and the limits, then the privileges, last the system calls: a seccomp
filter, as classic BPF, refuses those that get around the other limits. They are: new namespaces and
mounts, memory that no rlimit counts (memfd, System V, message queues), other processes' memory,
keyrings, BPF, io_uring, loading kernel code, and every socket but a Unix one (AF_VSOCK and others
do not belong to a network namespace). The rest is left to uid, namespaces and rlimits.
"""

import ctypes
import os
import resource
import struct

OUTPUT_BYTES = 16 << 20
OPEN_FILES = 64
WORK_DIRECTORY = "/box"
WORK_BYTES, WORK_FILES = 256 << 20, 4096
STACK_BYTES = 64 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV = 2, 4
_PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522

# Numbers on x86_64 and aarch64 (Linux, asm/unistd_64.h and asm-generic/unistd.h).
_REFUSED = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "fanotify_init": (300, 262),
    "vmsplice": (278, 75),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "personality": (135, 92),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
}
_ONLY_X86 = (154, 172, 173)  # modify_ldt, iopl, ioperm
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone
_AF_UNIX = 1
_EPERM, _ENOSYS = 1, 38
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; both are little-endian


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def mount_work_directory(uid: int) -> None:
    """An empty directory in memory, limited in bytes and files: the only one that is writable."""
    options = f"size={WORK_BYTES},nr_inodes={WORK_FILES},mode=0700,uid={uid},gid={uid}"
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    target = WORK_DIRECTORY.encode()
    result = _libc.mount(b"tmpfs", target, b"tmpfs", flags, options.encode())
    _check(result, f"mount {WORK_DIRECTORY}")


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
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(ctypes.byref(header), (ctypes.c_uint32 * 6)()), "capset")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    code = bpf_program(os.uname().machine)
    pointer = ctypes.byref(_FilterProgram(len(code) // 8, code))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer)
    if 0 in os.getresuid():
        raise PermissionError("still uid 0, which no limit on processes binds")


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants that lose theirs."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def bpf_program(machine: str) -> bytes:
    """The filter for a machine, "x86_64" or "aarch64", as an array of struct sock_filter.

    Raises KeyError for any other machine.
    """
    arch = _AUDIT_ARCH[machine]
    column = 0 if machine == "x86_64" else 1
    code = [
        _step(_LOAD, _ARCH),
        _step(_JUMP_EQUAL, arch, 1, 0),
        _step(_RETURN, _KILL),  # a 32-bit call on a 64-bit kernel
        _step(_LOAD, _NUMBER),
        _step(_JUMP_AT_LEAST, 0x40000000, 0, 1),
        _step(_RETURN, _KILL),  # x32
    ]
    refused = [numbers[column] for numbers in _REFUSED.values()]
    for number in refused + list(_ONLY_X86 if machine == "x86_64" else ()):
        code += [_step(_JUMP_EQUAL, number, 0, 1), _step(_RETURN, _ERRNO | _EPERM)]
    # Its flags lie in memory, where no filter sees them: libc falls back to clone.
    code += [_step(_JUMP_EQUAL, _CLONE3[column], 0, 1), _step(_RETURN, _ERRNO | _ENOSYS)]
    code += [
        _step(_JUMP_EQUAL, _CLONE[column], 0, 4),
        _step(_LOAD, _ARGUMENT),
        _step(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
        _step(_JUMP_EQUAL, _SOCKET[column], 0, 3),
        _step(_LOAD, _ARGUMENT),
        _step(_JUMP_EQUAL, _AF_UNIX, 1, 0),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(code)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _prctl(option: int, *arguments: object) -> None:
    padded = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0, 0)]
    _check(_libc.prctl(option, *padded[:4]), f"prctl {option}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
