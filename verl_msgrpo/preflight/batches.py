"""Batches, mini-batches and micro-batches against the data-parallel ranks."""

import math
from collections.abc import Iterator

from verl_msgrpo.preflight.problems import Problem
from verl_msgrpo.preflight.run import ACTOR, REF, ROLLOUT, Run
from verl_msgrpo.preflight.settings import text, value, whole

CHECK = "batches"
BATCH = "data.train_batch_size"
MINI = f"{ACTOR}.ppo_mini_batch_size"


def check_batches(run: Run) -> Iterator[Problem]:
    """Divisibility, and the settings of micro-batches that verl asserts in its workers."""
    if run.gpus % run.model_parallel:
        return  # there is no number of ranks; parallelism.py says so
    yield from _whole_batch(run)
    yield from _micro_batches(run)
    mode = text(run.config, "trainer.v1.trainer_mode") or "sync"
    cycle = whole(run.config, f"trainer.v1.{mode}.parameter_sync_step")
    if run.prompts % cycle:
        key = f"trainer.v1.{mode}.parameter_sync_step"
        message = f"{key} = {cycle} does not divide {BATCH} = {run.prompts}"
        yield Problem(CHECK, message, f"{key}={math.gcd(cycle, run.prompts)}")


def _next_multiple(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _whole_batch(run: Run) -> Iterator[Problem]:
    ranks = f"{run.dp} data-parallel ranks ({run.gpus} / {run.model_parallel})"
    unit = run.dp // math.gcd(run.dp, run.n)  # prompts whose responses divide among the ranks
    sequences = run.prompts * run.n
    if sequences % run.dp:
        missing = _next_multiple(sequences, run.dp) - sequences
        yield Problem(
            CHECK,
            f"prompts x responses = {run.prompts} x {run.n} = {sequences} is not a multiple of the "
            f"{ranks}; verl would fill up with {missing} synthetic sequences, or stop",
            f"{BATCH}={_next_multiple(run.prompts, unit)}",
        )
    mini = run.mini_prompts * run.n
    if mini % run.dp:
        yield Problem(
            CHECK,
            f"mini-batch x responses = {run.mini_prompts} x {run.n} = {mini} is not a multiple of "
            f"the {ranks}",
            f"{MINI}={_next_multiple(run.mini_prompts, unit)}",
        )
    elif run.mini_prompts > run.prompts:
        message = f"mini-batch {run.mini_prompts} is above {BATCH} = {run.prompts}"
        yield Problem(CHECK, message, f"{MINI}={run.prompts}")
    elif run.prompts % run.mini_prompts:
        fit = next(size for size in range(run.mini_prompts, 0, -1) if run.prompts % size == 0)
        if fit % unit:
            fit = run.prompts
        yield Problem(
            CHECK,
            f"mini-batch {run.mini_prompts} does not divide {BATCH} = {run.prompts}: the last "
            "update of every step would be filled up with synthetic sequences",
            f"{MINI}={fit}",
        )


def _micro_batches(run: Run) -> Iterator[Problem]:
    rollout_dynamic = value(run.config, f"{ROLLOUT}.log_prob_use_dynamic_bsz") is True
    if rollout_dynamic != run.dynamic:
        message = f"{ROLLOUT}.log_prob_use_dynamic_bsz differs from {ACTOR}.use_dynamic_bsz"
        yield Problem(CHECK, message, f"{ROLLOUT}.log_prob_use_dynamic_bsz={run.dynamic}")
    if run.dynamic:
        return
    per_rank = run.mini_prompts * run.n // run.dp
    step_per_rank = run.prompts * run.n // run.dp
    parts = [
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", per_rank, "mini-batch"),
        (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", step_per_rank, "step"),
    ]
    if run.has_reference:
        key = f"{REF}.log_prob_micro_batch_size_per_gpu"
        parts.append((key, step_per_rank, "step"))
    for key, sequences, what in parts:
        micro = whole(run.config, key, default=0)
        if micro == 0:
            yield Problem(CHECK, f"{key} is not set", f"{key}=1")
        elif sequences % micro:
            message = (
                f"{key} = {micro} does not divide the {sequences} sequences of a rank's {what}"
            )
            yield Problem(CHECK, message, f"{key}={math.gcd(micro, sequences)}")
