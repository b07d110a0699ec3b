"""An estimate of the GPU memory that a run takes, from the model's shape and the layout.

Weights, gradients, optimizer and the bytes of a token in the cache are exact arithmetic; what verl
keeps beside them (activations, logits, buffers of NCCL and CUDA) is a rough figure.
"""

from dataclasses import dataclass

from verl_msgrpo.preflight.model_facts import ModelFacts
from verl_msgrpo.preflight.run import ACTOR, FSDP, MEGATRON, REF, ROLLOUT, Run
from verl_msgrpo.preflight.settings import is_on, number, text, texts, value, whole

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


def estimate(run: Run) -> MemoryEstimate | None:
    """None where the model's shape is unknown, has experts, or the engine is another."""
    model = run.model
    if model is None or model.experts or not (run.is_megatron or run.is_fsdp):
        return None
    part = stage_parameters(model, run) if run.is_megatron else model.parameters
    sharing = run.gpus if run.is_fsdp else run.dp * run.cp
    size = value(run.config, f"{FSDP}.fsdp_size")
    if run.is_fsdp and isinstance(size, int) and size > 0:
        sharing = size
    if run.is_megatron:
        # bf16 weights, fp32 gradients, of the distributed optimizer fp32 weights and two moments.
        distributed = is_on(run.config, f"{MEGATRON}.use_distributed_optimizer")
        weights, gradients = 2 * part, 4 * part
        optimizer = 12 * part / (sharing if distributed else 1)
        reference = 2.0 * part
        engine, ref_engine = MEGATRON, f"{REF}.megatron"
    else:
        each = (
            2 if (text(run.config, f"{FSDP}.model_dtype") or "fp32") in ("bf16", "bfloat16") else 4
        )
        weights = gradients = each * part / sharing
        optimizer = 2 * each * part / sharing
        ref_dtype = text(run.config, f"{REF}.fsdp_config.model_dtype") or "fp32"
        reference = (2.0 if ref_dtype in ("bf16", "bfloat16") else 4.0) * part / sharing
        engine, ref_engine = FSDP, f"{REF}.fsdp_config"
    reference = reference if run.has_reference else 0.0
    off_weights = is_on(run.config, f"{engine}.param_offload")
    off_optimizer = is_on(run.config, f"{engine}.optimizer_offload")
    off_reference = is_on(run.config, f"{ref_engine}.param_offload")
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
        activations=activation_bytes(model, run) / GIB,
        rollout_weights=2 * model.parameters / run.rollout_tp / GIB,
        kv_bytes_per_token=kv_bytes_per_token(model, run.rollout_tp),
        resident=resident / GIB,
        host=host * run.gpus_per_node / GIB,
    )


def stage_parameters(model: ModelFacts, run: Run) -> float:
    """Parameters of a GPU of the fullest pipeline stage: TP splits the matrices, PP the layers."""
    layers = -(-model.layers // run.pp) * model.layer_parameters
    ends = model.embedding_parameters
    if run.pp == 1:
        return (layers + ends * (1 if model.tied else 2) + model.hidden) / run.tp
    return (layers + ends + model.hidden) / run.tp  # first and last stage each hold one end


def kv_bytes_per_token(model: ModelFacts, tp: int) -> int:
    """Keys and values of all layers in bf16 on one GPU; vLLM copies heads where TP exceeds them."""
    heads = max(1, model.kv_heads // tp)
    return 2 * model.layers * heads * model.head_dim * 2


def micro_batch_tokens(run: Run) -> int:
    """Tokens that a GPU takes at once, at most."""
    if run.dynamic:
        return whole(run.config, f"{ACTOR}.ppo_max_token_len_per_gpu", default=16384)
    micro = whole(run.config, f"{ACTOR}.ppo_micro_batch_size_per_gpu")
    return -(-micro * run.sequence_length // run.cp)


def activation_bytes(model: ModelFacts, run: Run) -> float:
    """Each layer's bf16 input, one layer's inner tensors, and the logits with their gradient."""
    tokens, tp = micro_batch_tokens(run), run.tp if run.is_megatron else 1
    kept = 2 * tokens * model.hidden * (model.layers // run.pp if run.is_megatron else model.layers)
    inner = 2 * tokens * (8 * model.hidden + 4 * model.ffn)
    logits = 6 * tokens * model.vocab  # bf16, and fp32 for the softmax
    return (kept + inner + logits) / tp


def cache_room(run: Run, memory: MemoryEstimate, card_gib: float) -> CacheRoom:
    """What gpu_memory_utilization leaves for keys and values."""
    share = number(run.config, f"{ROLLOUT}.gpu_memory_utilization", 0.5)
    gib = max(0.0, share * card_gib - memory.rollout_weights - VLLM_WORKSPACE_GIB)
    tokens = int(gib * GIB / memory.kv_bytes_per_token)
    return CacheRoom(gib, tokens, tokens // run.sequence_length)


def checkpoint_bytes(run: Run) -> float | None:
    """A checkpoint of the actor on disk; None where the model's size is unknown."""
    if run.model is None or run.model.experts or not (run.is_megatron or run.is_fsdp):
        return None
    contents = texts(run.config, f"{ACTOR}.checkpoint.save_contents")
    each = 0
    if "model" in contents:
        each += 2 if run.is_megatron else 4
    if "optimizer" in contents:
        each += 12 if run.is_megatron else 8
    if "hf_model" in contents:
        each += 2
    return float(each) * run.model.parameters
