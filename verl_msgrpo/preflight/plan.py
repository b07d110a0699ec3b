"""The plan of a launch, as text and as plain data."""

import textwrap
from collections.abc import Iterator

from verl_msgrpo.preflight.checks import Findings
from verl_msgrpo.preflight.files import train_rows
from verl_msgrpo.preflight.launch import Launch
from verl_msgrpo.preflight.memory import (
    Card,
    MemoryEstimate,
    cache_room,
    checkpoints_gib,
    micro_batch_tokens,
)
from verl_msgrpo.preflight.settings import ACTOR, ROLLOUT, number, text, whole


def plan(found: Findings) -> dict[str, object]:
    """Sections of plain numbers and texts; empty where the configuration could not be read.

    A section is a dictionary, one text, or None.
    """
    launch = found.launch
    if launch is None:
        return {}
    return {
        "model": _model(launch),
        "layout": _layout(launch),
        "step": _step(launch, found),
        "lengths": {
            "prompt": launch.prompt_length,
            "response": launch.response_length,
            "model_maximum": launch.model.max_positions if launch.model else None,
            "tokens_per_gpu_at_once": micro_batch_tokens(launch),
        },
        "memory_gib_per_gpu": _memory(launch, found.memory, found.card) if found.memory else None,
        "disk": _disk(launch),
        "programs": found.programs,
    }


def _model(launch: Launch) -> dict[str, object]:
    facts = launch.model
    return {
        "path": launch.model_path,
        "parameters": facts.parameters if facts and not facts.experts else None,
        "facts_from": facts.source if facts else "unknown",
    }


def _layout(launch: Launch) -> dict[str, object]:
    layout: dict[str, object] = {
        "engine": launch.strategy,
        "nodes": launch.nodes,
        "gpus": launch.gpus,
    }
    if launch.is_megatron:
        layout |= {"tp": launch.tp, "pp": launch.pp, "cp": launch.cp}
    elif launch.is_fsdp:
        layout |= {"ulysses": launch.cp}
    rollout = {"rollout": text(launch.config, f"{ROLLOUT}.name"), "rollout_tp": launch.rollout_tp}
    return layout | {"dp": launch.dp} | rollout | {"rollout_replicas": launch.replicas}


def _step(launch: Launch, found: Findings) -> dict[str, object]:
    rows = train_rows(launch, found.files)
    return {
        "estimator": text(launch.config, "algorithm.adv_estimator"),
        "prompts": launch.prompts,
        "responses_per_prompt": launch.n,
        "sequences": launch.prompts * launch.n,
        "tokens_at_most": launch.prompts * launch.n * launch.sequence_length,
        "updates": launch.updates,
        "sequences_per_update": launch.mini_prompts * launch.n,
        "learning_rate": number(launch.config, f"{ACTOR}.optim.lr"),
        "total_steps": whole(launch.config, "trainer.total_training_steps", default=0) or None,
        "training_rows": rows,
        "steps_per_epoch": rows // launch.prompts if rows is not None else None,
    }


def _memory(launch: Launch, memory: MemoryEstimate, card: Card | None) -> dict[str, object]:
    sizes: dict[str, object] = {
        "weights": round(memory.weights, 1),
        "gradients": round(memory.gradients, 1),
        "optimizer": round(memory.optimizer, 1),
        "reference": round(memory.reference, 1),
        "activations_and_logits_rough": round(memory.activations, 1),
        "resident_beside_vllm": round(memory.resident, 1),
        "rollout_weights": round(memory.rollout_weights, 1),
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "host_per_node": round(memory.host, 1),
    }
    if card is not None:
        room = cache_room(launch, memory, card.gib)
        sizes |= {
            "card": card.name,
            "card_gib": card.gib,
            "kv_cache": round(room.gib, 1),
            "kv_cache_tokens": room.tokens,
            "kv_cache_full_sequences": room.sequences,
        }
    return sizes


def _disk(launch: Launch) -> dict[str, object] | None:
    needed = checkpoints_gib(launch)
    if needed is None:
        return None
    size, count = needed
    return {"checkpoint_gib": round(size, 1), "checkpoints_at_once": count}


def as_text(found: Findings) -> Iterator[str]:
    """The lines of the plan, then the problems, then the verdict."""
    for title, section in plan(found).items():
        if isinstance(section, dict):
            section = ", ".join(
                f"{name.replace('_', ' ')} {_shown(item)}"
                for name, item in section.items()
                if item is not None
            )
        if section is not None:
            yield from _wrapped(title.replace("_", " "), str(section))
    for note in found.notes:
        yield from _wrapped("not checked", note)
    for problem in found.problems:
        yield f"{problem.severity.upper()} {problem.check}: {problem.message}"
        yield f"    fix: {problem.fix}"
    errors, warnings = len(found.errors), len(found.problems) - len(found.errors)
    yield f"{errors} error(s), {warnings} warning(s)"


def _wrapped(title: str, content: str) -> list[str]:
    return textwrap.wrap(
        content,
        width=100,
        initial_indent=f"{title:<20}",
        subsequent_indent=" " * 20,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _shown(item: object) -> str:
    if isinstance(item, int) and item >= 10_000:
        return f"{item:,}"
    return str(item)
