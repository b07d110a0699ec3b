"""Whether the run fits its GPUs and its disk."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from verl_msgrpo.preflight.files import existing_parent
from verl_msgrpo.preflight.memory import (
    GIB,
    MemoryEstimate,
    cache_room,
    checkpoint_bytes,
    micro_batch_tokens,
)
from verl_msgrpo.preflight.problems import WARNING, Problem
from verl_msgrpo.preflight.run import ACTOR, FSDP, MEGATRON, ROLLOUT, Run
from verl_msgrpo.preflight.settings import number, text, whole

MEMORY = "memory"
DISK = "disk"

# GiB that a process sees on the card, about.
CARDS: Mapping[str, float] = {
    "a100-40": 39.4,
    "a100-80": 79.1,
    "a6000": 47.5,
    "b200": 178.3,
    "h100": 79.1,
    "h20": 95.1,
    "h200": 139.7,
    "l40s": 44.4,
    "rtx4090": 23.5,
}


@dataclass(frozen=True)
class Card:
    """A GPU by name, with its memory in GiB."""

    name: str
    gib: float


def check_memory(run: Run, memory: MemoryEstimate, card: Card) -> Iterator[Problem]:
    """Training's states, then the update's peak, then generation beside what stays resident."""
    engine = MEGATRON if run.is_megatron else FSDP
    shard = f"{MEGATRON}.tensor_model_parallel_size={2 * run.tp}"
    if run.is_fsdp:
        shard = f"trainer.nnodes={2 * run.nodes}"
    where = f"a {card.name} has {card.gib:.0f} GiB"
    if memory.states > card.gib:
        message = f"weights, gradients and optimizer take {memory.states:.0f} GiB; {where}"
        yield Problem(MEMORY, message, shard)
    elif memory.training > card.gib:
        key = f"{ACTOR}.ppo_max_token_len_per_gpu"
        smaller = max(run.sequence_length // run.cp + 1, micro_batch_tokens(run) // 2)
        fix = f"{key}={smaller}" if smaller < micro_batch_tokens(run) else shard
        if not run.dynamic:
            fix = f"{ACTOR}.ppo_micro_batch_size_per_gpu=1"
        message = (
            f"an update takes about {memory.training:.0f} GiB, {memory.activations:.0f} of them "
            f"for activations and logits (rough); {where}"
        )
        yield Problem(MEMORY, message, fix, WARNING)
    share_key = f"{ROLLOUT}.gpu_memory_utilization"
    share = number(run.config, share_key, 0.5)
    if share * card.gib + memory.resident > card.gib:
        message = (
            f"vLLM takes {share:.0%} = {share * card.gib:.0f} GiB, and {memory.resident:.0f} GiB "
            f"of training stay beside it; {where}"
        )
        fix = f"{engine}.param_offload=True {engine}.optimizer_offload=True"
        yield Problem(MEMORY, message, fix)
    room = cache_room(run, memory, card.gib)
    if room.sequences < 1:
        needed = memory.rollout_weights + 3 + memory.kv_bytes_per_token * run.sequence_length / GIB
        wanted = -(-100 * needed // card.gib) / 100 + 0.05
        fits = wanted <= 0.9
        message = (
            f"vLLM's {share:.0%} of the card hold {memory.rollout_weights:.0f} GiB of weights and "
            f"{room.tokens} tokens of cache: not one sequence of {run.sequence_length}"
        )
        fix = (
            f"{share_key}={wanted:.2f}"
            if fits
            else f"{ROLLOUT}.tensor_model_parallel_size={2 * run.rollout_tp}"
        )
        yield Problem(MEMORY, message, fix)


def checkpoints_gib(run: Run) -> tuple[float, int] | None:
    """GiB of one checkpoint, and how many lie on the disk at one time; None if none is known."""
    size = checkpoint_bytes(run)
    every = whole(run.config, "trainer.save_freq", default=-1)
    if size is None or every <= 0:
        return None
    steps = whole(run.config, "trainer.total_training_steps", default=0)
    saves = -(-steps // every) if steps else 1
    keep = whole(run.config, "trainer.max_actor_ckpt_to_keep", default=0)
    # The oldest is removed after the newest is written.
    return size / GIB, min(saves, keep + 1) if keep else saves


def check_disk(run: Run) -> Iterator[Problem]:
    """Room for the checkpoints that lie on the disk at one time."""
    needed = checkpoints_gib(run)
    folder = text(run.config, "trainer.default_local_dir")
    if needed is None or folder is None:
        return
    size, count = needed
    parent = existing_parent(folder)
    free = shutil.disk_usage(parent).free / GIB
    if size * count <= free:
        return
    keep = int(free // size) - 1
    message = (
        f"{count} checkpoints of {size:.0f} GiB do not fit the {free:.0f} GiB that are free at "
        f"{parent}"
    )
    fix = "trainer.default_local_dir=<a folder on a larger disk>"
    if keep >= 1:
        fix = f"trainer.max_actor_ckpt_to_keep={keep}"
    yield Problem(DISK, message, fix)
