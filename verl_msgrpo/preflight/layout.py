"""How a launch divides over its GPUs: ranks, then batches over the ranks, then tokens of a rank."""

import math
from collections.abc import Iterator

from verl_msgrpo.preflight.launch import Launch
from verl_msgrpo.preflight.settings import (
    ACTOR,
    ERROR,
    FSDP,
    MEGATRON,
    MODEL,
    REF,
    ROLLOUT,
    WARNING,
    Problem,
    text,
    value,
    whole,
)

PARALLELISM, BATCHES, LENGTHS = "parallelism", "batches", "lengths"
TP = f"{MEGATRON}.tensor_model_parallel_size"
PP = f"{MEGATRON}.pipeline_model_parallel_size"
CP = f"{MEGATRON}.context_parallel_size"
VPP = f"{MEGATRON}.virtual_pipeline_model_parallel_size"
ULYSSES = f"{FSDP}.ulysses_sequence_parallel_size"
ROLLOUT_TP = f"{ROLLOUT}.tensor_model_parallel_size"
# With one of these Megatron's pipeline stages may hold different numbers of layers.
UNEVEN_STAGES = tuple(
    f"{MEGATRON}.override_transformer_config.{name}"
    for name in (
        "num_layers_in_first_pipeline_stage",
        "num_layers_in_last_pipeline_stage",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
        "pipeline_model_parallel_layout",
    )
)


def check_parallelism(launch: Launch) -> Iterator[Problem]:
    """World size, heads and layers against TP, PP, CP, and the rollout's TP."""
    if launch.is_megatron:
        yield from _megatron(launch)
    elif launch.is_fsdp:
        yield from _fsdp(launch)
    else:
        yield Problem(
            PARALLELISM,
            f"strategy {launch.strategy!r}: its layout over GPUs is not checked here",
            "model_engine=megatron",
            WARNING,
        )
    yield from _rollout(launch)


def largest_divisor(number: int, limit: int, of: int = 0) -> int:
    """The largest divisor of `number` (and of `of`, where given) that is not above `limit`."""
    for candidate in range(max(1, min(limit, number)), 0, -1):
        if number % candidate == 0 and (not of or of % candidate == 0):
            return candidate
    return 1


def _megatron(launch: Launch) -> Iterator[Problem]:
    if launch.gpus % launch.model_parallel:
        yield Problem(
            PARALLELISM,
            f"TP x PP x CP = {launch.tp} x {launch.pp} x {launch.cp} = {launch.model_parallel} "
            f"does not divide nodes x GPUs = {launch.nodes} x {launch.gpus_per_node} = "
            f"{launch.gpus}",
            _fitting_layout(launch),
        )
    if launch.tp > launch.gpus_per_node:
        message = (
            f"TP = {launch.tp} is more than a node's {launch.gpus_per_node} GPUs: each layer waits "
            "for the network"
        )
        fix = f"{TP}={largest_divisor(launch.gpus_per_node, launch.tp)}"
        yield Problem(PARALLELISM, message, fix, WARNING)
    yield from _megatron_model(launch)
    vpp = whole(launch.config, VPP, default=0)
    if vpp > 1 and launch.pp == 1:
        yield Problem(PARALLELISM, f"virtual pipeline {vpp} needs PP > 1", f"{VPP}=null")
    if launch.has_reference:
        for name, mine in (("tensor", launch.tp), ("pipeline", launch.pp)):
            key = f"{REF}.megatron.{name}_model_parallel_size"
            theirs = whole(launch.config, key)
            if theirs != mine:
                message = f"{key} = {theirs}, the actor's is {mine}: both share Megatron's groups"
                yield Problem(PARALLELISM, message, f"{key}={mine}")


def _megatron_model(launch: Launch) -> Iterator[Problem]:
    model, tp = launch.model, launch.tp
    if model is None:
        return
    if model.heads % tp:
        message = f"TP = {tp} does not divide the model's {model.heads} attention heads"
        fit = largest_divisor(model.heads, tp, launch.gpus // (launch.pp * launch.cp))
        yield Problem(PARALLELISM, message, f"{TP}={fit}")
    elif model.kv_heads % tp and tp % model.kv_heads:
        message = f"TP = {tp} and the model's {model.kv_heads} key-value heads do not divide evenly"
        yield Problem(PARALLELISM, message, f"{TP}={largest_divisor(model.kv_heads, tp)}")
    elif tp > model.kv_heads:
        message = f"TP = {tp} keeps copies of the model's {model.kv_heads} key-value heads"
        yield Problem(PARALLELISM, message, f"{TP}={model.kv_heads}", WARNING)
    stages = launch.pp * max(1, whole(launch.config, VPP, default=1))
    is_uneven = any(value(launch.config, key) for key in UNEVEN_STAGES)
    if model.layers % stages and not is_uneven:
        message = f"PP (x virtual) = {stages} does not divide the model's {model.layers} layers"
        yield Problem(PARALLELISM, message, f"{PP}={largest_divisor(model.layers, launch.pp)}")


def _fitting_layout(launch: Launch) -> str:
    """The nearest layout that the GPUs allow: CP kept, then PP, then TP."""
    cp = largest_divisor(launch.gpus, launch.cp)
    pp = largest_divisor(launch.gpus // cp, launch.pp)
    heads = launch.model.kv_heads if launch.model else 0
    tp = largest_divisor(launch.gpus // (cp * pp), launch.tp, heads)
    wanted = ((TP, launch.tp, tp), (PP, launch.pp, pp), (CP, launch.cp, cp))
    return " ".join(f"{key}={new}" for key, old, new in wanted if new != old)


def _fsdp(launch: Launch) -> Iterator[Problem]:
    heads = launch.model.heads if launch.model else 0
    fix = f"{ULYSSES}={largest_divisor(launch.gpus, launch.cp, heads)}"
    if launch.gpus % launch.cp:
        yield Problem(
            PARALLELISM,
            f"Ulysses = {launch.cp} does not divide nodes x GPUs = {launch.nodes} x "
            f"{launch.gpus_per_node} = {launch.gpus}",
            fix,
        )
    if heads % launch.cp:
        message = f"Ulysses = {launch.cp} does not divide the model's {heads} heads"
        yield Problem(PARALLELISM, message, fix)
    size = value(launch.config, f"{FSDP}.fsdp_size")
    if isinstance(size, int) and size > 0 and launch.gpus % size:
        message = f"fsdp_size = {size} does not divide {launch.gpus} GPUs"
        yield Problem(PARALLELISM, message, f"{FSDP}.fsdp_size=-1")
    if launch.cp > 1 and value(launch.config, f"{MODEL}.use_remove_padding") is not True:
        message = "Ulysses needs sequences without padding"
        yield Problem(PARALLELISM, message, f"{MODEL}.use_remove_padding=True")
    if launch.strategy == "fsdp":
        message = "this is FSDP1; verl develops FSDP2"
        yield Problem(PARALLELISM, message, f"{ACTOR}.strategy=fsdp2", WARNING)


def _rollout(launch: Launch) -> Iterator[Problem]:
    tp, world, per_node = launch.rollout_tp, launch.rollout_world, launch.gpus_per_node
    heads = launch.model.heads if launch.model else 0
    fix = f"{ROLLOUT_TP}={largest_divisor(per_node, tp, heads)}"
    if launch.gpus % world or (per_node % world and world % per_node):
        yield Problem(
            PARALLELISM,
            f"a rollout replica takes TP x DP x PP = {world} GPUs, which do not divide "
            f"{launch.nodes} x {per_node} = {launch.gpus} GPUs",
            fix,
        )
    elif heads % tp:
        message = f"rollout TP = {tp} does not divide the model's {heads} heads"
        yield Problem(PARALLELISM, message, fix)
    if launch.model is not None and text(launch.config, f"{ROLLOUT}.name") == "vllm":
        kv_heads = launch.model.kv_heads
        if heads % tp == 0 and kv_heads % tp and tp % kv_heads:
            message = (
                f"rollout TP = {tp} and the model's {kv_heads} key-value heads do not divide evenly"
            )
            yield Problem(PARALLELISM, message, f"{ROLLOUT_TP}={largest_divisor(kv_heads, tp)}")
    if tp > per_node:
        message = f"rollout TP = {tp} is more than a node's {per_node} GPUs"
        yield Problem(PARALLELISM, message, fix, WARNING)


# --- Batches --------------------------------------------------------------------------------------

BATCH = "data.train_batch_size"
MINI = f"{ACTOR}.ppo_mini_batch_size"


def check_batches(launch: Launch) -> Iterator[Problem]:
    """Divisibility, and the settings of micro-batches that verl asserts in its workers."""
    if launch.gpus % launch.model_parallel:
        return  # there is no number of ranks, which check_parallelism says
    yield from _whole_batch(launch)
    yield from _micro_batches(launch)
    mode = text(launch.config, "trainer.v1.trainer_mode") or "sync"
    cycle = whole(launch.config, f"trainer.v1.{mode}.parameter_sync_step")
    if launch.prompts % cycle:
        key = f"trainer.v1.{mode}.parameter_sync_step"
        message = f"{key} = {cycle} does not divide {BATCH} = {launch.prompts}"
        yield Problem(BATCHES, message, f"{key}={math.gcd(cycle, launch.prompts)}")


def _next_multiple(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _whole_batch(launch: Launch) -> Iterator[Problem]:
    ranks = f"{launch.dp} data-parallel ranks ({launch.gpus} / {launch.model_parallel})"
    # Prompts whose responses divide among the ranks.
    unit = launch.dp // math.gcd(launch.dp, launch.n)
    sequences = launch.prompts * launch.n
    if sequences % launch.dp:
        missing = _next_multiple(sequences, launch.dp) - sequences
        yield Problem(
            BATCHES,
            f"prompts x responses = {launch.prompts} x {launch.n} = {sequences} is not a multiple "
            f"of the {ranks}; verl would fill up with {missing} synthetic sequences, or stop",
            f"{BATCH}={_next_multiple(launch.prompts, unit)}",
        )
    mini = launch.mini_prompts * launch.n
    if mini % launch.dp:
        yield Problem(
            BATCHES,
            f"mini-batch x responses = {launch.mini_prompts} x {launch.n} = {mini} is not a "
            f"multiple of the {ranks}",
            f"{MINI}={_next_multiple(launch.mini_prompts, unit)}",
        )
    elif launch.mini_prompts > launch.prompts:
        message = f"mini-batch {launch.mini_prompts} is above {BATCH} = {launch.prompts}"
        yield Problem(BATCHES, message, f"{MINI}={launch.prompts}")
    elif launch.prompts % launch.mini_prompts:
        fit = next(size for size in range(launch.mini_prompts, 0, -1) if launch.prompts % size == 0)
        if fit % unit:
            fit = launch.prompts
        yield Problem(
            BATCHES,
            f"mini-batch {launch.mini_prompts} does not divide {BATCH} = {launch.prompts}: verl "
            "would fill up the last update of every step with synthetic sequences",
            f"{MINI}={fit}",
        )


def _micro_batches(launch: Launch) -> Iterator[Problem]:
    rollout_dynamic = value(launch.config, f"{ROLLOUT}.log_prob_use_dynamic_bsz") is True
    if rollout_dynamic != launch.dynamic:
        message = f"{ROLLOUT}.log_prob_use_dynamic_bsz differs from {ACTOR}.use_dynamic_bsz"
        yield Problem(BATCHES, message, f"{ROLLOUT}.log_prob_use_dynamic_bsz={launch.dynamic}")
    if launch.dynamic:
        return
    per_rank = launch.mini_prompts * launch.n // launch.dp
    step_per_rank = launch.prompts * launch.n // launch.dp
    parts = [
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", per_rank, "mini-batch"),
        (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", step_per_rank, "step"),
    ]
    if launch.has_reference:
        key = f"{REF}.log_prob_micro_batch_size_per_gpu"
        parts.append((key, step_per_rank, "step"))
    for key, sequences, what in parts:
        micro = whole(launch.config, key, default=0)
        if micro == 0:
            yield Problem(BATCHES, f"{key} is not set", f"{key}=1")
        elif sequences % micro:
            message = (
                f"{key} = {micro} does not divide the {sequences} sequences of a rank's {what}"
            )
            yield Problem(BATCHES, message, f"{key}={math.gcd(micro, sequences)}")


# --- Lengths --------------------------------------------------------------------------------------

PROMPT, RESPONSE = "data.max_prompt_length", "data.max_response_length"
MODEL_LENGTH = f"{ROLLOUT}.max_model_len"


def check_lengths(launch: Launch) -> Iterator[Problem]:
    """Prompt + response against the model's maximum, vLLM's, and the micro-batches."""
    total = f"prompt + response = {launch.prompt_length} + {launch.response_length}"
    longest = launch.model.max_positions if launch.model else None
    limit = whole(launch.config, MODEL_LENGTH, default=0)
    if longest is not None and launch.sequence_length > longest:
        room = longest - launch.prompt_length
        fix = f"{RESPONSE}={room}" if room > 0 else f"{PROMPT}={longest // 2}"
        message = f"{total} = {launch.sequence_length} is above the model's maximum of {longest}"
        yield Problem(LENGTHS, message, fix)
    if longest is not None and limit > longest:
        message = f"{MODEL_LENGTH} = {limit} is above the model's maximum of {longest}"
        yield Problem(LENGTHS, message, f"{MODEL_LENGTH}={longest}")
    if limit and limit < launch.sequence_length:
        message = f"{total} = {launch.sequence_length} is above {MODEL_LENGTH} = {limit}"
        severity = WARNING if limit > launch.prompt_length else ERROR
        yield Problem(LENGTHS, message, f"{MODEL_LENGTH}={launch.sequence_length}", severity)
    for key, name in (
        (f"{ROLLOUT}.response_length", RESPONSE),
        (f"{ROLLOUT}.prompt_length", PROMPT),
    ):
        if whole(launch.config, key) != whole(launch.config, name):
            message = f"{key} = {whole(launch.config, key)} differs from {name}"
            yield Problem(LENGTHS, message, f"{key}={whole(launch.config, name)}", WARNING)
    if launch.dynamic:
        yield from _token_budgets(launch, total)


def _token_budgets(launch: Launch, total: str) -> Iterator[Problem]:
    """A sequence is never split: it has to fit one micro-batch."""
    keys = [f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"]
    if launch.has_reference:
        keys.append(f"{REF}.log_prob_max_token_len_per_gpu")
    needed = -(-launch.sequence_length // launch.cp)
    for key in keys:
        budget = whole(launch.config, key, default=0)
        if budget < needed:
            shared = f" shared by {launch.cp} ranks" if launch.cp > 1 else ""
            message = f"{key} = {budget} is below {total} = {launch.sequence_length}{shared}"
            yield Problem(LENGTHS, message, f"{key}={needed}")
