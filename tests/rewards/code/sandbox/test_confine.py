"""The filter's numbers against the kernel's own headers, and its logic on every call."""

import re
import struct
from pathlib import Path

import pytest

from verl_msgrpo.rewards.code.sandbox import confine

HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), r"__NR_(\w+)\s+(\d+)"),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"), r"__NR(?:3264)?_(\w+)\s+(\d+)"),
}
ALLOW, KILL = 0x7FFF0000, 0x80000000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(machine, number, argument=0, arch=None):
    """What the filter returns for a call: classic BPF, carried out step by step."""
    program = list(struct.iter_unpack("<HBBI", confine.bpf_program(machine)))
    data = {0: number, 4: ARCH[machine] if arch is None else arch, 16: argument}
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == 0x20:
            accumulator = data[value]
        elif code == 0x06:
            return value
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_the_kernel_s(machine):
    header, pattern = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    numbers = {name: int(n) for name, n in re.findall("#define " + pattern, header.read_text())}
    refused = {name: pair[machine == "aarch64"] for name, pair in confine._REFUSED.items()}
    known = {name: number for name, number in refused.items() if name in numbers}
    assert known == {name: numbers[name] for name in known}
    assert len(known) > 40
    for name, pair in (("clone", confine._CLONE), ("clone3", confine._CLONE3)):
        assert pair[machine == "aarch64"] == numbers[name]
    assert confine._SOCKET[machine == "aarch64"] == numbers["socket"]


@pytest.mark.parametrize("machine", ARCH)
def test_every_call_gets_the_verdict_it_should(machine):
    column = machine == "aarch64"
    clone, clone3, socket = (
        pair[column] for pair in (confine._CLONE, confine._CLONE3, confine._SOCKET)
    )
    refused = {pair[column] for pair in confine._REFUSED.values()}
    refused |= {154, 172, 173} if machine == "x86_64" else set()
    for number in range(600):
        if number in (clone, clone3, socket):
            continue
        assert verdict(machine, number) == (0x50001 if number in refused else ALLOW), number
    assert verdict(machine, clone3) == 0x50026
    assert verdict(machine, clone, 17) == ALLOW
    assert verdict(machine, clone, 0x3D0F00) == ALLOW  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(machine, clone, flag | 17) == 0x50001
    assert verdict(machine, socket, 1) == ALLOW
    for family in (0, 2, 10, 16, 17, 38, 40):
        assert verdict(machine, socket, family) == 0x50001
    assert verdict(machine, 0x40000000 + 1) == KILL
    assert verdict(machine, 1, arch=0x40000003) == KILL
