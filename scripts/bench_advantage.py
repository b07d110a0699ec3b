"""Times the MS-GRPO estimator against verl's, and shows what the "diverse" shortcut costs.

    python scripts/bench_advantage.py            # needs verl; about a minute on two cores

Every estimator is called in verl's signature with token-level rewards, a mask and uids. The
competitors take turns within one run; the table gives medians of 7 rounds, and the ratio to each
bar. `naive` is the definition, estimator/reference.py (timed on a few prompts and scaled up). Then
what the metrics cost, the memory that one call adds, and the error of the paper's preset against
the exact average over all subgroups.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages
from verl_msgrpo.estimator.advantages import compute_advantages
from verl_msgrpo.estimator.metrics import metrics_of
from verl_msgrpo.estimator.reference import reference_advantages
from verl_msgrpo.verl_plugin.estimator import compute_ms_grpo_advantage

ROUNDS = 7
WARM_UP = 12
MEMORY_BAR_GIB = 1.0
METRICS_BAR = 0.05


class Case(NamedTuple):
    """A batch of `prompts` groups of `group_size` responses of `tokens` tokens, and its bars."""

    name: str
    group_size: int
    prompts: int
    tokens: int
    kind: str
    bars: dict[str, float]
    """competitor -> largest allowed ratio of our time to its."""


CASES = {
    "G8": Case("G = 8, continuous", 8, 1024, 1024, "normal", {"grpo": 0.3, "grpo_vectorized": 1.2}),
    "G64": Case("G = 64, binary, 63 scales", 64, 256, 512, "binary", {"grpo": 0.5}),
    "G16": Case("G = 16, continuous, 2^16 subgroups", 16, 256, 512, "normal", {"grpo": 6.0}),
}
KINDS = ("binary", "three levels", "F1-like", "normal", "heavy tail")


def rewards_of(
    kind: str, prompts: int, group_size: int, generator: torch.Generator
) -> torch.Tensor:
    """(prompts, group_size) float64; each prompt has its own difficulty."""
    shape = (prompts, group_size)
    difficulty = torch.rand(prompts, 1, generator=generator, dtype=torch.float64)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    match kind:
        case "binary":
            return (uniform < difficulty).double()
        case "three levels":
            return 0.1 * (normal > -1) + 0.9 * (uniform < difficulty)
        case "F1-like":  # a share of a small number of words, often 0 or 1
            return (5 * (difficulty + 0.5 * normal)).round().clamp(0, 5) / 5
        case "normal":
            return normal
        case "heavy tail":
            return normal.exp().square()
    raise ValueError(kind)


class Arguments(TypedDict):
    """What verl's trainer passes to an estimator."""

    token_level_rewards: torch.Tensor
    response_mask: torch.Tensor
    index: npt.NDArray[np.object_]
    config: dict[str, dict[str, str]]


def batch(case: Case) -> Arguments:
    """A batch of this case, with MS-GRPO over all subgroups."""
    generator = torch.Generator().manual_seed(0)
    rows = case.prompts * case.group_size
    token_level_rewards = torch.zeros(rows, case.tokens)
    rewards = rewards_of(case.kind, case.prompts, case.group_size, generator)
    token_level_rewards[:, -1] = rewards.flatten()
    mask = torch.ones(rows, case.tokens)
    uids = [f"{i:032x}" for i in range(case.prompts)]
    index = np.array([uid for uid in uids for _ in range(case.group_size)], dtype=object)
    return {
        "token_level_rewards": token_level_rewards,
        "response_mask": mask,
        "index": index,
        "config": {"ms_grpo": {"subgroups": "all"}},
    }


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def bench(case: Case) -> dict[str, float]:
    """Median seconds per call of each competitor, in turns, after the warm-up.

    Memory that is touched for the first time costs a virtual machine five to ten times more than
    memory that was freed before, and it takes a few rounds until all results lie in such memory.
    """
    from verl.trainer.ppo import core_algos

    arguments = batch(case)
    competitors: dict[str, Callable[..., object]] = {
        "ms_grpo": compute_ms_grpo_advantage,
        "grpo": core_algos.compute_grpo_outcome_advantage,
        "grpo_vectorized": core_algos.compute_grpo_vectorized_outcome_advantage,
    }
    times: dict[str, list[float]] = {name: [] for name in competitors}
    order = list(competitors.items())
    for round_ in range(WARM_UP + ROUNDS):
        order.append(order.pop(0))  # whoever follows a large result finds its memory warm
        for name, function in order:
            taken = seconds(partial(function, **arguments))
            if round_ >= WARM_UP:
                times[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    if case.group_size <= 8:
        groups = arguments["token_level_rewards"].sum(dim=1).reshape(-1, case.group_size)
        few = groups[:8].double().tolist()
        medians["naive"] = (
            seconds(lambda: [reference_advantages(group) for group in few]) * case.prompts / 8
        )
    return medians


def share_of_metrics(case: Case, settings: dict[str, str]) -> float:
    """Share of a whole call, in verl's signature, that goes into the metrics of the groups."""
    arguments: Arguments = {**batch(case), "config": {"ms_grpo": settings}}
    rewards = arguments["token_level_rewards"].sum(dim=-1)
    groups = torch.arange(case.prompts).repeat_interleave(case.group_size)
    config = MSGRPOConfig.from_mapping(settings)
    shares = []
    for round_ in range(3 * ROUNDS + 1):
        whole = seconds(lambda: compute_ms_grpo_advantage(**arguments))
        _, workings = compute_advantages(rewards, groups, config)
        metrics = seconds(partial(metrics_of, workings, config))
        if round_:
            shares.append(metrics / (whole - metrics))
    return statistics.median(shares)


def added_memory_gib(name: str) -> float:
    """Peak memory that one call adds, in a process of its own (Linux only)."""
    code = (
        "import re, sys; sys.path.insert(0, 'scripts')\n"
        "import bench_advantage as b\n"
        "status = lambda: open('/proc/self/status').read()\n"
        "kib = lambda key: int(re.search(key + r':\\s+(\\d+)', status())[1])\n"
        f"arguments = b.batch(b.CASES[{name!r}])\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"  # forget the peak so far
        "before = kib('VmRSS')\n"
        "b.compute_ms_grpo_advantage(**arguments)\n"
        "print(kib('VmHWM') - before)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return int(result.stdout.split()[-1]) / 2**20


def error_of_diverse(group_size: int, kind: str, prompts: int = 200) -> tuple[float, float]:
    """Relative error of the paper's preset against "all" scales and subgroups.

    Returns:
        share of the norm of the exact advantages that is left after the best common rescaling of
        the preset's, and that factor.
    """
    generator = torch.Generator().manual_seed(group_size)
    rewards = rewards_of(kind, prompts, group_size, generator)
    exact = ms_grpo_advantages(rewards, MSGRPOConfig(subgroups="all", max_terms=2**22))
    preset = ms_grpo_advantages(rewards, MSGRPOConfig(preset="paper"))
    factor = (exact * preset).sum() / preset.square().sum()
    return ((exact - factor * preset).norm() / exact.norm()).item(), factor.item()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default: 2)")
    parser.add_argument(
        "--only", choices=["speed", "metrics", "memory", "error"], help="one table only"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    missed = 0
    if args.only in (None, "speed"):
        print(f"{'batch':36}{'competitor':18}{'its ms':>9}{'our ms':>9}{'ratio':>8}{'bar':>6}")
        for case in CASES.values():
            medians = bench(case)
            ours = medians.pop("ms_grpo")
            for name, theirs in medians.items():
                bar = case.bars.get(name)
                verdict = "" if bar is None else "OK" if ours <= bar * theirs else "MISSED"
                missed += verdict == "MISSED"
                print(
                    f"{case.name:36}{name:18}{1e3 * theirs:9.1f}{1e3 * ours:9.1f}"
                    f"{ours / theirs:8.3g}{'' if bar is None else bar:>6}  {verdict}"
                )
    if args.only in (None, "metrics"):
        print(f"\n{'batch':36}{'settings':18}{'metrics / estimator':>20}{'bar':>6}")
        for case in CASES.values():
            for settings in ({"subgroups": "all"}, {"preset": "paper"}):
                share = share_of_metrics(case, settings)
                verdict = "OK" if share <= METRICS_BAR else "MISSED"
                missed += verdict == "MISSED"
                label = next(iter(settings.values()))
                print(f"{case.name:36}{label:18}{share:20.1%}{METRICS_BAR:>6.0%}  {verdict}")
    if args.only in (None, "memory"):
        print(f"\n{'batch':36}{'added GiB':>10}{'bar':>6}")
        for name, case in CASES.items():
            added = added_memory_gib(name)
            verdict = "OK" if added <= MEMORY_BAR_GIB else "MISSED"
            missed += verdict == "MISSED"
            print(f"{case.name:36}{added:10.3f}{MEMORY_BAR_GIB:>6}  {verdict}")
    if args.only in (None, "error"):
        print('\nError of preset "paper" (4 scales, 8 subgroups each) against all subgroups of all')
        print("scales: norm of what is left after the best rescaling / norm (the factor)\n")
        print(f"{'rewards':16}" + "".join(f"{f'G = {size}':>18}" for size in (4, 8, 12, 16)))
        for kind in KINDS:
            cells = [error_of_diverse(size, kind) for size in (4, 8, 12, 16)]
            print(f"{kind:16}" + "".join(f"{f'{e:.1%} ({f:.3f})':>18}" for e, f in cells))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
