"""scripts/whole_tree.py, with processes that leave their group and hear no signal."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

# Under nohup these tests would hear no SIGHUP either.
WRAPPER = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.path.insert(0, sys.argv.pop(1))
import whole_tree
whole_tree.GRACE_S = whole_tree.LEFT_S = float(sys.argv.pop(1))
raise SystemExit(whole_tree.main())
"""
SCRIPTS = Path(__file__).parents[1] / "scripts"
# A daemon in a session of its own, an orphan after this; then the command goes on.
STUBBORN = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[1] + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(3600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
ENDS = STUBBORN + "sys.exit(3)"
KILLED = STUBBORN + "os.kill(os.getpid(), signal.SIGKILL)"
WAITS = """
try:
    open(sys.argv[1] + ".waits", "w").close()
    time.sleep(3600)
except KeyboardInterrupt:
    open(sys.argv[1] + ".interrupted", "w").close()
    {then}
"""
SAYS_SO = STUBBORN + WAITS.format(then="sys.exit(3)")
GOES_ON = STUBBORN + WAITS.format(then="time.sleep(3600)")
LIMIT_S = 300


def start(program: str, pid_file: Path, seconds: float = 0.5) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", WRAPPER, str(SCRIPTS), str(seconds)]
    words += [sys.executable, "-c", program, str(pid_file)]
    return subprocess.Popen(words, process_group=0, stderr=subprocess.PIPE)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid_file: Path) -> bool:
    return psutil.pid_exists(int(pid_file.read_text()))


@pytest.mark.parametrize(("program", "code"), [(ENDS, 3), (KILLED, 128 + signal.SIGKILL)])
def test_what_the_command_leaves_is_ended(tmp_path, program, code):
    wrapper = start(program, tmp_path / "pid")
    _, told = wrapper.communicate(timeout=LIMIT_S)
    assert wrapper.returncode == code
    assert not is_alive(tmp_path / "pid")
    assert (tmp_path / "pid").read_text().encode() in told


@pytest.mark.parametrize("program", [SAYS_SO, GOES_ON])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_the_command_and_ends_the_rest(tmp_path, program, number):
    """Ctrl-C reaches the whole group; the other signals this process alone."""
    wrapper = start(program, tmp_path / "pid")
    wait_for(tmp_path / "pid.waits")
    (os.killpg if number == signal.SIGINT else os.kill)(wrapper.pid, number)
    wrapper.communicate(timeout=LIMIT_S)
    assert wrapper.returncode == -number
    assert (tmp_path / "pid.interrupted").exists()
    assert not is_alive(tmp_path / "pid")


def test_a_second_signal_ends_the_wait(tmp_path):
    wrapper = start(GOES_ON, tmp_path / "pid", seconds=3600)
    wait_for(tmp_path / "pid.waits")
    wrapper.terminate()
    wait_for(tmp_path / "pid.interrupted")
    deadline = time.monotonic() + LIMIT_S
    while wrapper.poll() is None:  # a signal at once after the first counts as the same one
        assert time.monotonic() < deadline
        wrapper.terminate()
        time.sleep(0.1)
    assert not is_alive(tmp_path / "pid")


def test_a_command_that_is_not_there():
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "whole_tree.py"), "no-such-command"],
        capture_output=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 127
    assert b"no-such-command" in done.stderr


# In the place of setup_cpu.sh, which all of them call first.
SET_UP = """
setsid sleep 3600 &
echo $! >pid.part
mv pid.part pid
exec sleep 3600
"""


SCRIPTS_WITH_TREES = [
    "scripts/run_tests.sh",
    "scripts/full_tests.sh",
    "scripts/search_faults.sh",
    "examples/quickstart/run.sh",
]


def test_nothing_is_left_of_a_script_that_is_stopped(tmp_path):
    """All at once: each waits some seconds for what it has started."""
    runs = {}
    for name in SCRIPTS_WITH_TREES:
        folder = tmp_path / Path(name).stem
        for file in ("scripts/whole_tree.py", "examples/common/quoted.sh", name):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SCRIPTS.parent / file, folder / file)
        (folder / "scripts/setup_cpu.sh").write_text(SET_UP)
        environment = {**os.environ, "PYTHON": sys.executable}
        runs[folder] = subprocess.Popen(["bash", str(folder / name)], env=environment, cwd="/")
    for folder, run in runs.items():
        wait_for(folder / "pid")
        run.terminate()
    for folder, run in runs.items():
        assert run.wait(timeout=LIMIT_S) == -signal.SIGTERM
        assert not is_alive(folder / "pid")
