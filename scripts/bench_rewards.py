"""Measures the rewards against their bars. Needs the extra `rewards`.

    python scripts/bench_rewards.py

Prints one line a bar: a ratio to it (above 1 is better than asked for), and OK or MISSED. Anything
else that runs meanwhile shifts the ratios. The throughput of two cores is also computed from the
processor time that the checks took, which a busy machine shifts less. Needs psutil too.
"""

import argparse
import json
import random
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from verl_msgrpo.rewards import code_tests, dispatch, math_answer, multiple_choice, search_qa

CHECKS_PER_SECOND = 200
PROGRAMS_PER_SECOND = 20
MISSING_SECONDS = 1e-3
LIMIT_S = 2.0
GROUP = 8
ENDLESS = r"\boxed{9^{9^{9^{9}}}}"


def main() -> int:
    """Runs every measurement; the exit code is 1 where a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks", type=int, default=3000, help="for throughput (3000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=100, help="for throughput (100)")
    args = parser.parse_args()
    pairs = ordinary_answers(random.Random(args.seed), args.checks)
    for gold, response in pairs[:20]:
        math_answer.compute_score("", response, gold)  # starts and warms both workers
    wall, cpu = throughput(pairs)
    met = [
        report("math, checks/s of ordinary answers", wall, CHECKS_PER_SECOND),
        report("math, checks per two seconds of processor time", cpu, CHECKS_PER_SECOND),
        report_at_most("math, longest wait behind two endless answers, s", poisoned(), LIMIT_S),
    ]
    wall, cpu = program_throughput(args.programs)
    met += [
        report("code, short programs/s with five tests each", wall, PROGRAMS_PER_SECOND),
        report("code, programs per two seconds of processor time", cpu, PROGRAMS_PER_SECOND),
    ]
    scorers: dict[str, Callable[..., object]] = {
        "math_answer": math_answer.compute_score,
        "multiple_choice": multiple_choice.compute_score,
        "search_qa": search_qa.compute_score,
        "code_tests": code_tests.compute_score,
        "dispatch": dispatch.compute_score,
    }
    for name, scorer in scorers.items():
        seconds = missing(scorer)
        met.append(
            report_at_most(f"{name}, no answer in 8,000 tokens, s", seconds, MISSING_SECONDS)
        )
    return 0 if all(met) else 1


def ordinary_answers(rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Groups of eight responses to a ground truth, half of them right, none without a worker."""
    pairs = []
    for _ in range(count // GROUP):
        a, b, c = (rng.randint(2, 999) for _ in range(3))
        gold, right = rng.choice(
            [
                (f"\\frac{{{a}}}{{{b}}}", f"{a}/{b}"),
                (f"{a / 8}", f"\\frac{{{a}}}{{8}}"),
                (f"{a}\\sqrt{{{b}}}", f"\\sqrt{{{b}}} \\cdot {a}"),
                (f"({a}, {b})", f"({a},{b})"),
                (f"{a}x^2+{b}x", f"x({a}x+{b})"),
                (f"{a}", f"{a}\\text{{ cm}}"),
                (f"{a}", f"x = {a}"),
                (f"\\frac{{{a}\\pi}}{{{b}}}", f"\\frac{{{a}}}{{{b}}}\\pi"),
                (f"{a}^{{2}}+{c}", f"{a * a + c}"),
            ]
        )
        for _ in range(GROUP):
            changed = right.replace(str(a), str(a + rng.randint(1, 99)))
            answer = right if rng.random() < 0.5 else changed
            pairs.append((gold, f"So the answer is $\\boxed{{{answer}}}$."))
    return pairs


def throughput(pairs: list[tuple[str, str]]) -> tuple[float, float]:
    """Checks per second from eight threads, and per two seconds of all processes' time."""
    started, used = time.monotonic(), processor_seconds()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda pair: math_answer.compute_score("", pair[1], pair[0]), pairs))
    used = processor_seconds() - used
    return len(pairs) / (time.monotonic() - started), 2 * len(pairs) / used


def processor_seconds() -> float:
    """User and system time of this process and its workers."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def program_throughput(count: int) -> tuple[float, float]:
    """Programs per second from eight threads, and per two seconds of all processes' time."""
    program = "def main():\n    a, b = map(int, input().split())\n    print(a + b)\n\nmain()"
    tests = [{"input": f"{n} 2\n", "output": f"{n + 2}\n", "testtype": "stdin"} for n in range(5)]
    row = ("", f"```python\n{program}\n```", json.dumps({"tests": tests, "fn_name": None}))
    first = code_tests.compute_score(*row)  # tries the isolation out
    if first["score"] != 1:
        print(f"code, no program could be run: {first}", flush=True)
        return 0.0, 0.0
    started, used = time.monotonic(), ended_processor_seconds()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: code_tests.compute_score(*row), range(count)))
    used = ended_processor_seconds() - used
    return count / (time.monotonic() - started), 2 * count / used


def ended_processor_seconds() -> float:
    """User and system time of this process and of those that it has waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    times = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in times)


def poisoned() -> float:
    """Seconds that the slowest of 50 ordinary checks takes while every worker meets poison."""
    poison = [
        threading.Thread(
            target=math_answer.compute_score, args=("", ENDLESS, "7"), kwargs={"timeout_s": LIMIT_S}
        )
        for _ in range(2)
    ]
    for thread in poison:
        thread.start()
    time.sleep(0.05)
    longest = 0.0
    for number in range(50):
        started = time.monotonic()
        reward = math_answer.compute_score("", f"\\boxed{{\\frac{{{number}}}{{7}}}}", f"{number}/7")
        longest = max(longest, time.monotonic() - started)
        assert reward["score"] == 1
    for thread in poison:
        thread.join()
    return longest


def missing(scorer: Callable[..., object]) -> float:
    """Seconds for a long response without an answer; the median of 200."""
    response = "We compute $\\frac{a}{b}$ and see that it is not what we want. " * 500
    seconds = []
    for _ in range(200):
        started = time.perf_counter()
        scorer("livecodebench/code_generation_lite", response, "B", {})
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def report(name: str, value: float, bar: float) -> bool:
    """Prints a value that should be at least the bar."""
    return _print(name, value, bar, value / bar)


def report_at_most(name: str, value: float, bar: float) -> bool:
    """Prints a value that should be at most the bar."""
    return _print(name, value, bar, bar / value)


def _print(name: str, value: float, bar: float, ratio: float) -> bool:
    verdict = "OK" if ratio >= 1 else "MISSED"
    print(f"{name}: {value:.4g} (bar {bar:g}), ratio {ratio:.2f} {verdict}", flush=True)
    return ratio >= 1


if __name__ == "__main__":
    sys.exit(main())
