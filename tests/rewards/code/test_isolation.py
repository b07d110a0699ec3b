"""Programs that try to get out of a sandbox."""

import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.reward_fns.code_rows import skip_without
from verl_msgrpo.common import once
from verl_msgrpo.rewards.code import isolation
from verl_msgrpo.rewards.code.isolation import launch
from verl_msgrpo.rewards.code.runner import (
    IsolationError,
    Program,
    SandboxStart,
    resident_bytes,
    run,
)

ROOT = Path(__file__).parents[3]
SYSTEM_PYTHON = Path("/usr/bin/python3.11")


@pytest.fixture(params=["bubblewrap"])
def way(request):
    skip_without(request.param)
    return request.param


def sandbox(way, memory_mb=1024):
    return way if isinstance(way, SandboxStart) else launch(way, memory_mb << 20)


def printed(way, source, inputs=("",), limit_s=20.0, **options):
    """What a program prints on each input, None where it fails."""
    found = [None] * len(inputs)

    def judge(number, output):
        found[number] = output.decode()

    run(sandbox(way, **options), Program(source), inputs, judge, limit_s)
    return found


ATTEMPT = """
import ctypes, os, socket, sys
*steps, last = sys.stdin.read().splitlines()
try:
    exec("\\n".join(steps))
    print(eval(last))
except Exception as error:
    print(type(error).__name__)
"""


def attempts(way, *bodies):
    """What the last line of each body gives, or the name of the error."""
    return [text and text.strip() for text in printed(way, ATTEMPT, bodies)]


def test_the_trial_finds_what_can_be_reached(way, monkeypatch):
    paths, temporary = isolation.visible_paths(), tempfile.gettempdir()
    outside = [path for path in paths if not path.startswith(temporary)]
    monkeypatch.setattr(isolation, "visible_paths", lambda: [*outside, temporary])
    assert "the machine's files" in isolation._what_it_reaches(way)
    monkeypatch.setattr(isolation, "visible_paths", lambda: paths)
    assert isolation._what_it_reaches(way) == ""

    def many(name, memory_bytes):  # the last argument is how many processes there may be
        start = launch(name, memory_bytes)
        return replace(start, command=[*start.command[:-1], "120"])

    monkeypatch.setattr(isolation, "launch", many)
    assert "any number of processes" in isolation._what_it_reaches(way)


def test_files(way, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("7")
    secret.chmod(0o666)
    hidden = (secret, ROOT / "pyproject.toml", "/etc/passwd", "/proc/self/status", "/bin/sh")
    assert set(attempts(way, *(f"open({str(path)!r}).read()" for path in hidden))) == {
        "FileNotFoundError"
    }
    closed = ("'/x'", "'/dev/x'", "'/usr/x'", "os.__file__", "sys.executable")
    assert set(attempts(way, *(f"open({path}, 'a')" for path in closed))) <= {
        "OSError",
        "PermissionError",
    }
    assert attempts(way, "sorted(set(os.listdir('/')) & {'home', 'proc', 'sys'})") == ["[]"]


def test_privileges(way):
    ids, setuid, chroot, environment, limits, raised = attempts(
        way,
        "0 in os.getresuid() + os.getresgid() + tuple(os.getgroups())",
        "os.setuid(0)",
        "os.chroot('.')",
        "sorted(set(os.environ) - {'PWD', 'LC_CTYPE'})",
        "import resource as r\n[r.getrlimit(n)[1] for n in (r.RLIMIT_CORE, r.RLIMIT_MEMLOCK)]",
        "import resource as r\nr.setrlimit(r.RLIMIT_NPROC, (10**5, 10**5))",
    )
    assert ids == "False"
    assert setuid == chroot == "PermissionError"
    assert environment == str(sorted(isolation.ENVIRONMENT))
    assert limits == "[1, 0]"
    assert raised in ("ValueError", "PermissionError")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls on x86_64")
def test_system_calls_that_are_refused(way):
    calls = {
        "unshare": "272, 0x10000000",
        "clone": "56, 0x10000011, 0, 0, 0, 0",
        "ptrace": "101, 16, 1, 0, 0",
        "process_vm_readv": "310, 1, 0, 0, 0, 0, 0",
        "memfd_create": "319, b'x', 0",
        "shmget": "29, 0, 4096, 0o1600",
        "mount": "165, b'x', b'/box', b'tmpfs', 0, 0",
        "socket of IPv4": "41, 2, 1, 0",
        "socket of a virtual machine": "41, 40, 1, 0",
        "socket of netlink": "41, 16, 3, 0",
        "keyctl": "250, 0, -3, 0, 0, 0",
        "io_uring_setup": "425, 8, 0",
    }
    body = "libc = ctypes.CDLL(None, use_errno=True)\n(libc.syscall({}), ctypes.get_errno())"
    results = attempts(way, *(body.format(call) for call in calls.values()))
    assert dict(zip(calls, results, strict=True)) == dict.fromkeys(calls, "(-1, 1)")


def test_a_pair_of_unix_sockets_works(way):
    assert attempts(way, "import asyncio\nasyncio.run(asyncio.sleep(0, 7))") == ["7"]


def test_the_network_is_empty(way):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        connect = f"socket.create_connection(('127.0.0.1', {port}), 1)"
        assert attempts(way, connect) == ["PermissionError"]
        with pytest.raises(TimeoutError):
            server.accept()


def test_nothing_is_left_of_a_test_for_the_next(way):
    source = """
import os, sys, time
name = input()
if name == "first":
    open("left", "w").close()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                os.write(1, b"7")
        os._exit(0)
    time.sleep(0.2)
else:
    others = 0
    for pid in range(2, 300):
        try:
            os.kill(pid, 0)
            others += pid != os.getpid()
        except ProcessLookupError:
            pass
    print(others)
"""
    before = resident_bytes(os.getpid()).keys()
    first, second = printed(way, source, ["first\n", "second\n"])
    assert set(first) == {"7"}
    assert second == "0\n"
    assert resident_bytes(os.getpid()).keys() <= before
    assert printed(way, "import os\nprint(os.listdir())") == ["[]\n"]


def test_descriptors(way):
    source = """
import os
found = []
for number in range(3, 1024):
    try:
        os.fstat(number)
        found.append(number)
    except OSError:
        pass
print(found)
"""
    assert printed(way, source) == ["[]\n"]


def test_the_supervisor_survives_a_program(way):
    source = """
import os, signal, sys
if input() == "attack":
    for name in signal.valid_signals():
        try:
            os.kill(1, name)
        except OSError:
            pass
    import ctypes
    ctypes.CDLL(None).ptrace(16, 1, 0, 0)
else:
    print("alive")
"""
    assert printed(way, source, ["attack\n", "x\n"]) == ["", "alive\n"]


def test_disk_space_and_files_are_bounded(way):
    written = """
import os
total = 0
try:
    for number in range(100):
        with open(str(number), "wb") as file:
            for _ in range(15):
                total += file.write(bytes(1 << 20))
except OSError:
    os.remove("0")
print(total >> 20)
"""
    assert 100 <= int(printed(way, written)[0]) <= 256
    files = """
count = 0
try:
    while True:
        open(str(count), "w").close()
        count += 1
except OSError:
    print(count)
"""
    assert int(printed(way, files)[0]) < 4096


def test_what_is_expected_is_not_in_its_memory(way):
    source = """
import gc, sys
frame, texts = sys._getframe(), []
while frame:
    texts += [repr(frame.f_globals), repr(frame.f_locals)]
    frame = frame.f_back
texts += [repr(o) for o in gc.get_objects() if isinstance(o, (str, bytes, tuple, list))]
found = [n for n in range(3) if any(("expected-" + str(n)) in text for text in texts)]
print(found, any("given" + "-input" in text for text in texts))
"""
    expected = ["expected-0", "expected-1"]
    said = []

    def judge(number, output):
        said.append((output.decode(), output == expected[number].encode()))

    run(sandbox(way), Program(source), ["given-input"], judge, 20.0)
    assert said == [("[] True\n", False)]  # it can see its input, so the search works


def test_large_inputs_and_outputs(way):
    text = "0123456789" * 800_000
    out = printed(way, "print(input())", [text, "x"])
    assert out == [text + "\n", "x\n"]
    assert printed(way, "print(input() * 2)", [text + text, "x"]) == [None, "xx\n"]


def test_memory_of_a_process(way):
    assert attempts(way, "len(bytearray(2 << 30))") == ["MemoryError"]
    assert printed(way, "print(len(bytearray(200 << 20)))", memory_mb=150) == [None]


def test_no_process_outlives_the_one_that_scores(way):
    code = f"""
from verl_msgrpo.rewards.code.isolation import launch
from verl_msgrpo.rewards.code.runner import Program, run
source = "import os\\nif os.fork() == 0: os.setsid()\\nwhile True: pass"
run(launch({way!r}, 1 << 30), Program(source), [""], print, 60.0)
"""
    scorer = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        deadline = time.monotonic() + 60
        while len(resident_bytes(scorer.pid)) < 4 and scorer.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        started = [psutil.Process(pid) for pid in resident_bytes(scorer.pid)]
        assert len(started) >= 4
    finally:
        scorer.kill()
        scorer.wait()
    assert psutil.wait_procs(started, timeout=30)[1] == []


def test_which_ways_there_are(monkeypatch):
    monkeypatch.setattr(isolation, "_fault", lambda name: "")
    assert isolation.choose() == isolation.choose("auto") == isolation.choose("bubblewrap")
    assert isolation.choose("limits") == "limits"
    for wanted in ("nonsense", "", None):
        with pytest.raises(IsolationError) as caught:
            isolation.choose(wanted)
        allowed = "isolation: allowed is auto, bubblewrap or limits, got"
        assert str(caught.value) == f"{allowed} {str(wanted)!r}"
    with pytest.raises(IsolationError, match=r"^isolation: allowed is .*apt install bubblewrap$"):
        isolation.choose("namespaces")  # a way that there once was


def test_bubblewrap_is_what_auto_stands_for_and_limits_are_never_taken_for_it(monkeypatch):
    monkeypatch.setattr(isolation, "_fault", lambda name: "no" if name[0] == "b" else "")
    with pytest.raises(IsolationError, match=r"^programs are not run: isolation=bubblewrap "):
        isolation.choose()


def test_limits_say_once_what_they_do_not_protect(monkeypatch, caplog):
    monkeypatch.setattr(isolation, "_fault", lambda name: "")
    once.forget()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            isolation.choose("limits")
        isolation.choose("bubblewrap")
    (record,) = caplog.records
    assert "NOT isolated from" in record.getMessage()
    assert "apt install bubblewrap" in record.getMessage()


@pytest.mark.parametrize(
    ("fault", "settings", "words"),
    [
        ("", {}, ["isolated by bubblewrap"]),
        ("", {"wanted": "bubblewrap"}, ["isolated by bubblewrap"]),
        ("", {"wanted": "limits"}, ["limits", "alone, NOT isolated", "apt install bubblewrap"]),
        ("", {"wanted": "namespaces"}, ["allowed is auto", "apt install bubblewrap"]),
        ("the reason", {}, ["are not run", "(the reason)", "user namespaces", "isolation=limits"]),
        ("the reason", {"wanted": "limits"}, ["are not run: isolation=limits", "(the reason)"]),
        ("the reason", {"sandbox_fusion_url": "http://x/run"}, ["server http://x/run"]),
    ],
)
def test_what_is_in_force_in_one_line(fault, settings, words, monkeypatch):
    monkeypatch.setattr(isolation, "_fault", lambda name: fault)
    line = isolation.in_force(**settings)
    assert "\n" not in line
    assert [word for word in words if word not in line] == []


def test_what_is_in_force_where_bubblewrap_is_not_installed(monkeypatch):
    monkeypatch.setattr(isolation.shutil, "which", lambda name: None)
    isolation._fault.cache_clear()
    try:
        line = isolation.in_force()
    finally:
        isolation._fault.cache_clear()
    assert "programs are not run" in line
    assert "apt install bubblewrap" in line


def test_limits_alone():
    """Only by name; needs a Python that other users can read."""
    skip_without("limits")
    _check_limits()


@pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEM_PYTHON.exists() or sys.version_info[:2] != (3, 11),
    reason="needs root, and the system's Python of the same version",
)
def test_limits_alone_with_the_system_s_python(monkeypatch):
    monkeypatch.setattr(sys, "_base_executable", str(SYSTEM_PYTHON))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert isolation._what_it_reaches("limits") == ""
    _check_limits()


def _check_limits():
    before = resident_bytes(os.getpid()).keys()
    assert printed("limits", "print(input())", ["7\n", "8\n"]) == ["7\n", "8\n"]
    assert attempts("limits", "os.getuid() in (0, 65534)") == ["False"]
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    assert printed("limits", bomb, limit_s=1.0) == [None]
    daemon = "import os\nif os.fork() == 0:\n  os.setsid()\n  while os.fork() >= 0: pass\nprint(7)"
    assert printed("limits", daemon) == ["7\n"]
    assert resident_bytes(os.getpid()).keys() <= before


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone starts programs as another user")
def test_a_python_that_others_cannot_read_is_named(monkeypatch, tmp_path):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(IsolationError, match=r"closed to other users"):
        isolation.launch("limits", 1 << 30)
    monkeypatch.setattr(isolation, "_may_mount", lambda: False)
    with pytest.raises(IsolationError, match=r"closed to other users"):
        isolation.launch("bubblewrap", 1 << 30)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["/nonexistent"], "cannot start"),
        (["/bin/sh", "-c", "echo the reason >&2; exit 1"], "the reason"),
        (["/bin/sh", "-c", "exit 0"], "ended at once"),
        (["/bin/sh", "-c", "echo ready or not"], "said"),
    ],
)
def test_a_sandbox_that_does_not_start_is_an_error(command, message):
    with pytest.raises(IsolationError, match=message):
        printed(SandboxStart(command, {}, 1 << 30), "print(1)")


@pytest.mark.parametrize(
    "reply",
    ["printf 'ready\\n'", "printf 'ready\\n\\377\\377\\377\\377'", "printf 'ready\\n\\0\\0\\0\\0'"],
)
def test_a_broken_reply_passes_no_test(reply):
    command = ["/bin/sh", "-c", reply]
    assert printed(SandboxStart(command, {}, 1 << 30), "print(1)") == [None]
