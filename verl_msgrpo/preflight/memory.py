"""Whether a launch fits its GPUs and its disk, estimated from the model's shape and the layout.

Weights, gradients, optimizer and the bytes of a token in the cache are exact arithmetic; what verl
keeps beside them (activations, logits, buffers of NCCL and CUDA) is a rough figure.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from verl_msgrpo.preflight.launch import Launch, ModelFacts
from verl_msgrpo.preflight.settings import (
    ACTOR,
    FSDP,
    MEGATRON,
    REF,
    ROLLOUT,
    WARNING,
    Problem,
    existing_parent,
    is_on,
    local_path,
    number,
    text,
    texts,
    value,
    whole,
)

GIB = 2**30
VLLM_WORKSPACE_GIB = 3.0
"""Of vLLM beside weights and cache: activations of a prefill, CUDA graphs. Rough."""
CUDA_CONTEXT_GIB = 2.0
"""CUDA context and NCCL's buffers of a training process. Rough."""


@dataclass(frozen=True)
class MemoryEstimate:
    """GiB per GPU."""

    weights: float
    gradients: float
    optimizer: float
    reference: float
    """Of the reference model while it computes; with offload it takes turns with the actor."""
    activations: float
    """Checkpointed activations and logits of one micro-batch. Rough."""
    rollout_weights: float
    kv_bytes_per_token: int
    resident: float
    """What stays on the GPU while vLLM generates."""
    host: float
    """Of all GPUs of one node together: what rests in host memory."""

    @property
    def states(self) -> float:
        """Weights, gradients and optimizer."""
        return self.weights + self.gradients + self.optimizer

    @property
    def training(self) -> float:
        """The peak of an update."""
        return self.states + self.activations + CUDA_CONTEXT_GIB


@dataclass(frozen=True)
class CacheRoom:
    """What vLLM's cache holds on a card."""

    gib: float
    tokens: int
    """Of one replica."""
    sequences: int
    """Full-length sequences of one replica at one time."""


def estimate(launch: Launch) -> MemoryEstimate | None:
    """None where the model's shape is unknown, has experts, or the engine is another."""
    model = launch.model
    if model is None or model.experts or not (launch.is_megatron or launch.is_fsdp):
        return None
    part = stage_parameters(model, launch) if launch.is_megatron else model.parameters
    sharing = launch.gpus if launch.is_fsdp else launch.dp * launch.cp
    size = value(launch.config, f"{FSDP}.fsdp_size")
    if launch.is_fsdp and isinstance(size, int) and size > 0:
        sharing = size
    if launch.is_megatron:
        # bf16 weights, fp32 gradients, of the distributed optimizer fp32 weights and two moments.
        distributed = is_on(launch.config, f"{MEGATRON}.use_distributed_optimizer")
        weights, gradients = 2 * part, 4 * part
        optimizer = 12 * part / (sharing if distributed else 1)
        reference = 2.0 * part
        engine, ref_engine = MEGATRON, f"{REF}.megatron"
    else:
        engine, ref_engine = FSDP, f"{REF}.fsdp_config"
        each = _bytes_per_parameter(text(launch.config, f"{engine}.model_dtype"))
        weights = gradients = each * part / sharing
        optimizer = 2 * each * part / sharing
        reference = _bytes_per_parameter(text(launch.config, f"{ref_engine}.model_dtype"))
        reference *= part / sharing
    reference = reference if launch.has_reference else 0.0
    off_weights = is_on(launch.config, f"{engine}.param_offload")
    off_optimizer = is_on(launch.config, f"{engine}.optimizer_offload")
    off_reference = is_on(launch.config, f"{ref_engine}.param_offload")
    resident = (
        (0 if off_weights else weights + gradients)
        + (0 if off_optimizer else optimizer)
        + (0 if off_reference else reference)
    )
    host = weights * off_weights + optimizer * off_optimizer + reference * off_reference
    return MemoryEstimate(
        weights=weights / GIB,
        gradients=gradients / GIB,
        optimizer=optimizer / GIB,
        reference=reference / GIB,
        activations=activation_bytes(model, launch) / GIB,
        rollout_weights=2 * model.parameters / launch.rollout_tp / GIB,
        kv_bytes_per_token=kv_bytes_per_token(model, launch.rollout_tp),
        resident=resident / GIB,
        host=host * launch.gpus_per_node / GIB,
    )


def _bytes_per_parameter(dtype: str | None) -> float:
    return 2.0 if dtype in ("bf16", "bfloat16") else 4.0  # fp32 where none is named


def stage_parameters(model: ModelFacts, launch: Launch) -> float:
    """Parameters of a GPU of the fullest pipeline stage: TP splits the matrices, PP the layers."""
    layers = -(-model.layers // launch.pp) * model.layer_parameters
    ends = model.embedding_parameters
    if launch.pp == 1:
        return (layers + ends * (1 if model.tied else 2) + model.hidden) / launch.tp
    return (layers + ends + model.hidden) / launch.tp  # first and last stage each hold one end


def kv_bytes_per_token(model: ModelFacts, tp: int) -> int:
    """Keys and values of all layers in bf16 on one GPU; vLLM copies heads where TP exceeds them."""
    heads = max(1, model.kv_heads // tp)
    return 2 * model.layers * heads * model.head_dim * 2


def micro_batch_tokens(launch: Launch) -> int:
    """Tokens that a GPU takes at once, at most."""
    if launch.dynamic:
        return whole(launch.config, f"{ACTOR}.ppo_max_token_len_per_gpu", default=16384)
    micro = whole(launch.config, f"{ACTOR}.ppo_micro_batch_size_per_gpu")
    return -(-micro * launch.sequence_length // launch.cp)


def activation_bytes(model: ModelFacts, launch: Launch) -> float:
    """Each layer's bf16 input, one layer's inner tensors, and the logits with their gradient."""
    tokens, tp = micro_batch_tokens(launch), launch.tp if launch.is_megatron else 1
    layers = model.layers // launch.pp if launch.is_megatron else model.layers
    kept = 2 * tokens * model.hidden * layers
    inner = 2 * tokens * (8 * model.hidden + 4 * model.ffn)
    logits = 6 * tokens * model.vocab  # bf16, and fp32 for the softmax
    return (kept + inner + logits) / tp


def cache_room(launch: Launch, memory: MemoryEstimate, card_gib: float) -> CacheRoom:
    """What gpu_memory_utilization leaves for keys and values."""
    share = number(launch.config, f"{ROLLOUT}.gpu_memory_utilization", 0.5)
    gib = max(0.0, share * card_gib - memory.rollout_weights - VLLM_WORKSPACE_GIB)
    tokens = int(gib * GIB / memory.kv_bytes_per_token)
    return CacheRoom(gib, tokens, tokens // launch.sequence_length)


def checkpoint_bytes(launch: Launch) -> float | None:
    """A checkpoint of the actor on disk; None where the model's size is unknown."""
    if launch.model is None or launch.model.experts or not (launch.is_megatron or launch.is_fsdp):
        return None
    contents = texts(launch.config, f"{ACTOR}.checkpoint.save_contents")
    each = 0
    if "model" in contents:
        each += 2 if launch.is_megatron else 4
    if "optimizer" in contents:
        each += 12 if launch.is_megatron else 8
    if "hf_model" in contents:
        each += 2
    return float(each) * launch.model.parameters


# --- Against a card and a disk --------------------------------------------------------------------

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


def check_memory(launch: Launch, memory: MemoryEstimate, card: Card) -> Iterator[Problem]:
    """Training's states, then the update's peak, then generation beside what stays resident."""
    engine = MEGATRON if launch.is_megatron else FSDP
    shard = f"{MEGATRON}.tensor_model_parallel_size={2 * launch.tp}"
    if launch.is_fsdp:
        shard = f"trainer.nnodes={2 * launch.nodes}"
    where = f"the {card.name} has {card.gib:.0f} GiB"
    if memory.states > card.gib:
        message = f"weights, gradients and optimizer take {memory.states:.0f} GiB; {where}"
        yield Problem(MEMORY, message, shard)
    elif memory.training > card.gib:
        key = f"{ACTOR}.ppo_max_token_len_per_gpu"
        smaller = max(launch.sequence_length // launch.cp + 1, micro_batch_tokens(launch) // 2)
        fix = f"{key}={smaller}" if smaller < micro_batch_tokens(launch) else shard
        if not launch.dynamic:
            fix = f"{ACTOR}.ppo_micro_batch_size_per_gpu=1"
        message = (
            f"an update takes about {memory.training:.0f} GiB, {memory.activations:.0f} of them "
            f"for activations and logits (rough); {where}"
        )
        yield Problem(MEMORY, message, fix, WARNING)
    share_key = f"{ROLLOUT}.gpu_memory_utilization"
    share = number(launch.config, share_key, 0.5)
    if share * card.gib + memory.resident > card.gib:
        message = (
            f"vLLM takes {share:.0%} = {share * card.gib:.0f} GiB, and {memory.resident:.0f} GiB "
            f"of training stay beside it; {where}"
        )
        fix = f"{engine}.param_offload=True {engine}.optimizer_offload=True"
        yield Problem(MEMORY, message, fix)
    room = cache_room(launch, memory, card.gib)
    if room.sequences < 1:
        cache = memory.kv_bytes_per_token * launch.sequence_length / GIB
        needed = memory.rollout_weights + VLLM_WORKSPACE_GIB + cache
        wanted = -(-100 * needed // card.gib) / 100 + 0.05
        message = (
            f"vLLM's {share:.0%} of the card holds {memory.rollout_weights:.0f} GiB of weights and "
            f"{room.tokens} tokens of cache: not one sequence of {launch.sequence_length}"
        )
        fix = f"{share_key}={wanted:.2f}"
        if wanted > 0.9:
            fix = f"{ROLLOUT}.tensor_model_parallel_size={2 * launch.rollout_tp}"
        yield Problem(MEMORY, message, fix)


def checkpoints_gib(launch: Launch) -> tuple[float, int] | None:
    """GiB of one checkpoint, and how many lie on the disk at one time; None if none is known."""
    size = checkpoint_bytes(launch)
    every = whole(launch.config, "trainer.save_freq", default=-1)
    if size is None or every <= 0:
        return None
    steps = whole(launch.config, "trainer.total_training_steps", default=0)
    saves = -(-steps // every) if steps else 1
    keep = whole(launch.config, "trainer.max_actor_ckpt_to_keep", default=0)
    # The oldest is removed after the newest is written.
    return size / GIB, min(saves, keep + 1) if keep else saves


def check_disk(launch: Launch) -> Iterator[Problem]:
    """Room for the checkpoints that lie on the disk at one time."""
    needed = checkpoints_gib(launch)
    folder = local_path(text(launch.config, "trainer.default_local_dir") or "")
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
