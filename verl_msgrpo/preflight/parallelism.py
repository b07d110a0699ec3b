"""How the run is laid out over the GPUs."""

from collections.abc import Iterator

from verl_msgrpo.preflight.problems import WARNING, Problem
from verl_msgrpo.preflight.run import FSDP, MEGATRON, REF, ROLLOUT, Run
from verl_msgrpo.preflight.settings import text, value, whole

CHECK = "parallelism"
TP = f"{MEGATRON}.tensor_model_parallel_size"
PP = f"{MEGATRON}.pipeline_model_parallel_size"
CP = f"{MEGATRON}.context_parallel_size"
VPP = f"{MEGATRON}.virtual_pipeline_model_parallel_size"
ULYSSES = f"{FSDP}.ulysses_sequence_parallel_size"
ROLLOUT_TP = f"{ROLLOUT}.tensor_model_parallel_size"


def check_parallelism(run: Run) -> Iterator[Problem]:
    """World size, heads and layers against TP, PP, CP, and the rollout's TP."""
    if run.is_megatron:
        yield from _megatron(run)
    elif run.is_fsdp:
        yield from _fsdp(run)
    else:
        yield Problem(
            CHECK,
            f"strategy {run.strategy!r}: its layout over GPUs is not checked here",
            "model_engine=megatron",
            WARNING,
        )
    yield from _rollout(run)


def largest_divisor(number: int, limit: int, of: int = 0) -> int:
    """The largest divisor of `number` (and of `of`, where given) that is not above `limit`."""
    for candidate in range(max(1, min(limit, number)), 0, -1):
        if number % candidate == 0 and (not of or of % candidate == 0):
            return candidate
    return 1


def _megatron(run: Run) -> Iterator[Problem]:
    if run.gpus % run.model_parallel:
        yield Problem(
            CHECK,
            f"TP x PP x CP = {run.tp} x {run.pp} x {run.cp} = {run.model_parallel} does not "
            f"divide nodes x GPUs = {run.nodes} x {run.gpus_per_node} = {run.gpus}",
            _fitting_layout(run),
        )
    if run.tp > run.gpus_per_node:
        message = f"TP = {run.tp} spans nodes of {run.gpus_per_node} GPUs: each layer waits for it"
        fix = f"{TP}={largest_divisor(run.gpus_per_node, run.tp)}"
        yield Problem(CHECK, message, fix, WARNING)
    yield from _megatron_model(run)
    vpp = whole(run.config, VPP, default=0)
    if vpp > 1 and run.pp == 1:
        yield Problem(CHECK, f"virtual pipeline {vpp} needs PP > 1", f"{VPP}=null")
    if run.has_reference:
        for name, mine in (("tensor", run.tp), ("pipeline", run.pp)):
            key = f"{REF}.megatron.{name}_model_parallel_size"
            theirs = whole(run.config, key)
            if theirs != mine:
                message = f"{key} = {theirs}, the actor's is {mine}: both share Megatron's groups"
                yield Problem(CHECK, message, f"{key}={mine}")


def _megatron_model(run: Run) -> Iterator[Problem]:
    if run.model is None:
        return
    if run.model.heads % run.tp:
        message = f"TP = {run.tp} does not divide the model's {run.model.heads} attention heads"
        fit = largest_divisor(run.model.heads, run.tp, run.gpus // (run.pp * run.cp))
        yield Problem(CHECK, message, f"{TP}={fit}")
    elif run.model.kv_heads % run.tp and run.tp % run.model.kv_heads:
        message = f"TP = {run.tp} fits not the model's {run.model.kv_heads} key-value heads"
        yield Problem(CHECK, message, f"{TP}={largest_divisor(run.model.kv_heads, run.tp)}")
    elif run.tp > run.model.kv_heads:
        message = f"TP = {run.tp} keeps copies of the model's {run.model.kv_heads} key-value heads"
        yield Problem(CHECK, message, f"{TP}={run.model.kv_heads}", WARNING)
    stages = run.pp * max(1, whole(run.config, VPP, default=1))
    options = f"{MEGATRON}.override_transformer_config"
    uneven = any(
        value(run.config, f"{options}.{name}")
        for name in (
            "num_layers_in_first_pipeline_stage",
            "num_layers_in_last_pipeline_stage",
            "account_for_embedding_in_pipeline_split",
            "account_for_loss_in_pipeline_split",
            "pipeline_model_parallel_layout",
        )
    )
    if run.model.layers % stages and not uneven:
        message = f"PP (x virtual) = {stages} does not divide the model's {run.model.layers} layers"
        yield Problem(CHECK, message, f"{PP}={largest_divisor(run.model.layers, run.pp)}")


def _fitting_layout(run: Run) -> str:
    """The nearest layout that the GPUs allow: CP kept, then PP, then TP."""
    cp = largest_divisor(run.gpus, run.cp)
    pp = largest_divisor(run.gpus // cp, run.pp)
    heads = run.model.kv_heads if run.model else 0
    tp = largest_divisor(run.gpus // (cp * pp), run.tp, heads)
    wanted = ((TP, run.tp, tp), (PP, run.pp, pp), (CP, run.cp, cp))
    return " ".join(f"{key}={new}" for key, old, new in wanted if new != old)


def _fsdp(run: Run) -> Iterator[Problem]:
    if run.gpus % run.cp:
        yield Problem(
            CHECK,
            f"Ulysses = {run.cp} does not divide nodes x GPUs = {run.nodes} x "
            f"{run.gpus_per_node} = {run.gpus}",
            f"{ULYSSES}={largest_divisor(run.gpus, run.cp, run.model.heads if run.model else 0)}",
        )
    if run.model is not None and run.model.heads % run.cp:
        message = f"Ulysses = {run.cp} does not divide the model's {run.model.heads} heads"
        fit = largest_divisor(run.model.heads, run.cp, run.gpus)
        yield Problem(CHECK, message, f"{ULYSSES}={fit}")
    size = value(run.config, f"{FSDP}.fsdp_size")
    if isinstance(size, int) and size > 0 and run.gpus % size:
        message = f"fsdp_size = {size} does not divide {run.gpus} GPUs"
        yield Problem(CHECK, message, f"{FSDP}.fsdp_size=-1")
    if run.cp > 1 and value(run.config, "actor_rollout_ref.model.use_remove_padding") is not True:
        message = "Ulysses works on sequences without padding"
        yield Problem(CHECK, message, "actor_rollout_ref.model.use_remove_padding=True")
    if run.strategy == "fsdp":
        message = "FSDP1; FSDP2 is what verl develops"
        yield Problem(CHECK, message, "actor_rollout_ref.actor.strategy=fsdp2", WARNING)


def _rollout(run: Run) -> Iterator[Problem]:
    fitting = largest_divisor(run.gpus_per_node, run.rollout_tp, _rollout_heads(run))
    world = run.rollout_world
    crosses = run.gpus_per_node % world and world % run.gpus_per_node
    if run.gpus % world or crosses:
        yield Problem(
            CHECK,
            f"a rollout replica takes TP x DP x PP = {world} GPUs, which do not divide "
            f"{run.nodes} x {run.gpus_per_node} = {run.gpus} GPUs",
            f"{ROLLOUT_TP}={fitting}",
        )
    elif run.model is not None and run.model.heads % run.rollout_tp:
        message = f"rollout TP = {run.rollout_tp} does not divide the {run.model.heads} heads"
        yield Problem(CHECK, message, f"{ROLLOUT_TP}={fitting}")
    if run.model is not None and text(run.config, f"{ROLLOUT}.name") == "vllm":
        kv_heads, tp = run.model.kv_heads, run.rollout_tp
        if run.model.heads % tp == 0 and kv_heads % tp and tp % kv_heads:
            message = f"rollout TP = {tp} fits not the model's {kv_heads} key-value heads"
            yield Problem(CHECK, message, f"{ROLLOUT_TP}={largest_divisor(kv_heads, tp)}")
    if run.nodes * run.gpus_per_node > 0 and run.rollout_tp > run.gpus_per_node:
        message = f"rollout TP = {run.rollout_tp} spans nodes of {run.gpus_per_node} GPUs"
        yield Problem(CHECK, message, f"{ROLLOUT_TP}={fitting}", WARNING)


def _rollout_heads(run: Run) -> int:
    return run.model.heads if run.model else 0
