r"""Programming (LiveCodeBench and sets like it): a Python program, run on tests.

The rules:

- The program is the last closed Python block of the final turn, between lines of ``` or ~~~; a
  block without a label counts only where none is labelled as Python. Blocks in observations never
  count. `pred` is its text.
- A test is passed if the program prints, or its function returns, what is expected, see
  `code_values`, and ends without an exception and with exit code 0. All tests count, those too that
  it did not come to. `acc` is 1 if all are passed; `passed` is their share. The program is never
  told what is expected, so nothing that it can print or write would make it pass.
- All tests together may take `timeout_s`. Whatever the program has not passed by then it has
  failed, `timeout` = 1. LiveCodeBench's own checker gives each test 6 s.
- It runs in a sandbox of its own, see `code_isolation`, on Python as this process's, with the
  installed packages: memory limited, output to 16 MiB a test, processes to 14, files to 256 MiB. In
  a process of its own for each test; none is left when the response is scored. Without any
  isolation that works no program is run: `error` = 1.
- With `sandbox_fusion_url` the programs run on that server instead. verl does not hand its own
  setting on to a custom reward function; `reward_fns/code_tests.py` shows how to.

The tests come from the ground truth, see `code_cases`. A row without tests that can be read has
`error` = 1.
"""

import os
import threading
from collections.abc import Callable, Sequence

from verl_msgrpo.rewards import code_fusion, code_isolation, code_runner
from verl_msgrpo.rewards.code_blocks import python_blocks
from verl_msgrpo.rewards.code_cases import read_tests
from verl_msgrpo.rewards.code_prelude import prelude
from verl_msgrpo.rewards.code_runner import MEMORY_MB, End, Program
from verl_msgrpo.rewards.model_text import OBSERVATION_TAGS, final_turn, is_cut_off
from verl_msgrpo.rewards.outcome import Alarm, Outcome, Reward, score_safely
from verl_msgrpo.rewards.settings import at_least

WORKERS = min(4, os.cpu_count() or 1)
SHORTEST_S = 0.1
SMALLEST_MB = 16  # with less Python does not start
_KEYS = ("passed",)
_ALARM = Alarm("code_tests")


def compute_score(
    data_source: object,
    solution_str: object,
    ground_truth: object,
    extra_info: object = None,
    *,
    partial: bool = False,
    format_bonus: float = 0.0,
    timeout_s: float = 10.0,
    memory_limit_mb: int = MEMORY_MB,
    isolation: str = "auto",
    workers: int = WORKERS,
    sandbox_fusion_url: str | None = None,
    concurrent_semaphore: code_fusion.Semaphore | None = None,
    observation_tags: Sequence[str] = OBSERVATION_TAGS,
    **_: object,
) -> Reward:
    """Scores one response; never raises.

    Args:
        data_source: not looked at.
        solution_str: the decoded response, observations included.
        ground_truth: the tests, see `code_cases`.
        extra_info: may say `truncated`, and `fn_name` where the ground truth does not.
        partial: whether the score is the share of tests passed, or else `acc`.
        format_bonus: share of the score for a program in a block, right or wrong (0 to 1).
        timeout_s: seconds that the program may take for all tests.
        memory_limit_mb: MiB that each of its processes may address, and all of them may use.
        isolation: "auto", or one way: "bubblewrap", "namespaces", or "limits", which is not safe.
        workers: programs that run at once, per process that scores; fixed by the first call.
        sandbox_fusion_url: a Sandbox Fusion server, to run programs there.
        concurrent_semaphore: limits the requests to that server.
        observation_tags: names of the tags around observations.

    Returns:
        `score` = (1 - format_bonus) * (passed if partial else acc) + format_bonus * format_ok,
        `acc`, `passed`, `format_ok`, `truncated`, `timeout`, `error`, `pred`.
    """

    def score() -> Outcome:
        at_least(SHORTEST_S, timeout_s=timeout_s)
        at_least(SMALLEST_MB, memory_limit_mb=memory_limit_mb)
        at_least(1, workers=workers)
        text = final_turn(solution_str, observation_tags)
        blocks = python_blocks(text)
        source = blocks.last or ""
        truncated = blocks.left_open or is_cut_off(text, extra_info)
        if not source.strip():
            return Outcome(truncated=truncated)
        suite = read_tests(ground_truth, extra_info)
        passed = [False] * len(suite.cases)

        def judge(number: int, output: bytes) -> None:
            passed[number] = suite.cases[number].is_right(output)

        program = Program(source, suite.function, prelude(source))
        end = run(program, [case.input for case in suite.cases], judge)
        share, correct = sum(passed) / len(passed), all(passed)
        return Outcome(
            value=share if partial else float(correct),
            correct=correct,
            format_ok=True,
            pred=source,
            truncated=truncated,
            timeout=end.timeout and not correct,
            parts={"passed": share},
        )

    def run(program: Program, inputs: list[str], judge: Callable[[int, bytes], None]) -> End:
        limits = (timeout_s, memory_limit_mb)
        if sandbox_fusion_url:
            url, semaphore = sandbox_fusion_url, concurrent_semaphore
            return code_fusion.run(url, program, inputs, judge, *limits, semaphore)
        with _places(workers):
            way = code_isolation.choose(isolation)
            return code_runner.run(way, program, inputs, judge, *limits)

    return score_safely(score, keys=_KEYS, alarm=_ALARM, format_bonus=format_bonus)


_shared_places: threading.BoundedSemaphore | None = None
_lock = threading.Lock()


def _places(count: int) -> threading.BoundedSemaphore:
    """The places for programs in this process; the first call alone chooses how many."""
    global _shared_places
    with _lock:
        if _shared_places is None:
            _shared_places = threading.BoundedSemaphore(count)
        return _shared_places


def _forget_places() -> None:
    """A forked process has none of the threads that would give a place back."""
    global _shared_places, _lock
    _shared_places, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_places)
