"""Nothing is left of a run that is interrupted, whatever it is doing then."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.runs import END_S, LIMIT_S, Quickstart, end

pytestmark = pytest.mark.e2e

PR_SET_CHILD_SUBREAPER = 36
OVERRIDES = ["trainer.test_freq=-1", "trainer.val_before_train=False"]


@pytest.fixture
def before() -> Iterator[set[psutil.Process]]:
    """What this process has started before; meanwhile, orphans become its children."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield set(psutil.Process().children(recursive=True))
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def runs_in(tree: list[psutil.Process], name: str) -> bool:
    """Whether one of the processes calls itself so, with or without a path."""
    for process in tree:
        with contextlib.suppress(psutil.Error, IndexError):
            if name in Path(process.cmdline()[0]).name:
                return True
    return False


@pytest.mark.parametrize(
    ("moment", "number", "to_the_group"),
    [
        ("raylet", signal.SIGINT, True),
        ("EngineCore", signal.SIGTERM, False),
        ("training", signal.SIGINT, True),
    ],
)
def test_no_process_is_left(quickstart: Quickstart, before, moment, number, to_the_group):
    """moment: when a process with this name runs, or when a step has been recorded."""
    name = f"interrupted-{moment}"
    recorded = quickstart.base / name / "steps.jsonl"
    run = quickstart.start(name, *OVERRIDES, process_group=0, PROBE_HOLD_AT=2)
    try:
        deadline = time.monotonic() + LIMIT_S
        while True:
            tree = psutil.Process(run.pid).children(recursive=True)
            if recorded.exists() or runs_in(tree, moment):
                break
            assert run.poll() is None, quickstart.output(name)
            assert time.monotonic() < deadline, quickstart.output(name)
            time.sleep(0.2)
        assert len(tree) > 3
        (os.killpg if to_the_group else os.kill)(run.pid, number)
        assert run.wait(timeout=END_S) == -number
    finally:
        end(run)
    assert set(psutil.Process().children(recursive=True)) <= before
