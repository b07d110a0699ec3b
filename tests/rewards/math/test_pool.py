import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("math_verify")
from verl_msgrpo.rewards.math.pool import MathPool

HALF, ENDLESS = (["1/2"], r"\frac12"), (["7"], "9^{9^{9^{9}}}")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def pool():
    pool = MathPool(2)
    yield pool
    pool.close()


def workers_of(pid):
    """Keepers of a process and their children."""
    found = psutil.Process(pid).children(recursive=True)
    return [process for process in found if "rewards.math.worker" in " ".join(process.cmdline())]


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_check_does_not_wait_for_an_endless_one(pool):
    assert pool.check(*HALF, 5).equal
    done = []
    endless = threading.Thread(target=lambda: done.append(pool.check(*ENDLESS, 3)))
    endless.start()
    while endless.is_alive() and len(done) < 5:
        done.append(pool.check(*HALF, 5))
    assert len(done) >= 5
    assert all(verdict.equal for verdict in done)
    endless.join()
    assert done[-1].timeout


def test_many_threads_and_kills(pool):
    found = []

    def work(check):
        found.append((check, pool.check(*check, 0.3 if check is ENDLESS else 5)))

    checks = [ENDLESS, HALF, HALF] * 4
    threads = [threading.Thread(target=work, args=(check,)) for check in checks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(checks)
    assert all(verdict.equal == (check is HALF) for check, verdict in found)
    assert sum(verdict.timeout for _, verdict in found) == 4


@pytest.mark.parametrize("victim", ["keeper", "child"])
def test_a_worker_that_others_kill_is_replaced(pool, victim):
    assert pool.check(*HALF, 5).equal
    for keeper in [psutil.Process(worker._process.pid) for worker in pool._workers]:
        for process in [keeper] if victim == "keeper" else keeper.children():
            process.send_signal(signal.SIGKILL)
    for _ in range(4):
        verdict = pool.check(*HALF, 5)
        assert verdict.equal, verdict


def test_a_check_that_needs_too_much_memory_is_wrong(pool):
    verdict = pool.check(["7"], r"\sum_{n=1}^{10^{12}} (n^{n})!", 1)
    assert not verdict.equal
    assert pool.check(*HALF, 5).equal


def test_close_leaves_no_process():
    pool = MathPool(1)
    pool.check(*HALF, 5)
    keepers = [psutil.Process(worker._process.pid) for worker in pool._workers]
    processes = [p for keeper in keepers for p in (keeper, *keeper.children())]
    pool.close()
    wait_for(lambda: not any(p.is_running() for p in processes))


@pytest.mark.parametrize("ending", ["exit", "kill", "kill while checking"])
def test_no_process_outlives_the_one_that_scores(ending):
    code = f"""
import sys, threading, time
from verl_msgrpo.rewards.math.pool import shared_pool
assert shared_pool(1).check(["1/2"], "0.5", 5).equal
threading.Thread(target=lambda: shared_pool().check(["7"], "9^{{9^{{9^{{9}}}}}}", 30),
                 daemon=True).start() if {ending == "kill while checking"} else None
print("ready", flush=True)
sys.stdin.readline()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    if ending == "kill while checking":
        time.sleep(0.3)
    workers = workers_of(process.pid)
    assert len(workers) == 2  # the keeper and its child
    if ending == "exit":
        process.stdin.write("\n")
        process.stdin.flush()
    else:
        process.kill()
    process.wait(30)
    process.stdin.close()
    process.stdout.close()
    wait_for(lambda: not any(worker.is_running() for worker in workers))


def test_a_forked_process_has_a_pool_of_its_own():
    from verl_msgrpo.rewards.math import pool as pools

    first = pools.shared_pool(1)
    assert first.check(*HALF, 5).equal
    pid = os.fork()
    if pid == 0:
        ok = False
        try:
            other = pools.shared_pool(1)
            ok = other is not first and other.check(*HALF, 5).equal
            other.close()
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert first.check(*HALF, 5).equal
