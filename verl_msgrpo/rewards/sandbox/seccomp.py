"""A seccomp filter, as classic BPF: refuses the system calls that get around the other limits.

Those are: new namespaces and mounts, memory that no rlimit counts (memfd, System V, message
queues), other processes' memory, keyrings, BPF, io_uring, loading kernel code, and every socket but
a Unix one (AF_VSOCK and others do not belong to a network namespace). The rest is left to uid,
namespaces and rlimits.
"""

import struct

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
