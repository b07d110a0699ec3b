"""The plan of a run, as text and as plain data."""

import textwrap
from collections.abc import Iterator

from verl_msgrpo.preflight.capacity import Card, checkpoints_gib
from verl_msgrpo.preflight.data_rows import train_rows
from verl_msgrpo.preflight.memory import MemoryEstimate, cache_room, micro_batch_tokens
from verl_msgrpo.preflight.report import Report
from verl_msgrpo.preflight.run import ACTOR, ROLLOUT, Run
from verl_msgrpo.preflight.settings import number, text, whole


def plan(report: Report) -> dict[str, object]:
    """Sections of plain numbers and texts; empty where the configuration could not be read."""
    run = report.run
    if run is None:
        return {}
    return {
        "model": _model(run),
        "layout": _layout(run),
        "step": _step(run, report),
        "lengths": {
            "prompt": run.prompt_length,
            "response": run.response_length,
            "model_maximum": run.model.max_positions if run.model else None,
            "tokens_per_gpu_at_once": micro_batch_tokens(run),
        },
        "memory_gib_per_gpu": _memory(run, report.memory, report.card) if report.memory else None,
        "disk": _disk(run),
    }


def _model(run: Run) -> dict[str, object]:
    facts = run.model
    return {
        "path": run.model_path,
        "parameters": facts.parameters if facts and not facts.experts else None,
        "facts_from": facts.source if facts else "unknown",
    }


def _layout(run: Run) -> dict[str, object]:
    layout: dict[str, object] = {"engine": run.strategy, "nodes": run.nodes, "gpus": run.gpus}
    if run.is_megatron:
        layout |= {"tp": run.tp, "pp": run.pp, "cp": run.cp}
    elif run.is_fsdp:
        layout |= {"ulysses": run.cp}
    rollout = {"rollout": text(run.config, f"{ROLLOUT}.name"), "rollout_tp": run.rollout_tp}
    return layout | {"dp": run.dp} | rollout | {"rollout_replicas": run.replicas}


def _step(run: Run, report: Report) -> dict[str, object]:
    rows = train_rows(run, list(report.files))
    return {
        "estimator": text(run.config, "algorithm.adv_estimator"),
        "prompts": run.prompts,
        "responses_per_prompt": run.n,
        "sequences": run.prompts * run.n,
        "tokens_at_most": run.prompts * run.n * run.sequence_length,
        "updates": -(-run.prompts // run.mini_prompts) * whole(run.config, f"{ACTOR}.ppo_epochs"),
        "sequences_per_update": run.mini_prompts * run.n,
        "learning_rate": number(run.config, f"{ACTOR}.optim.lr"),
        "total_steps": whole(run.config, "trainer.total_training_steps", default=0) or None,
        "training_rows": rows,
        "steps_per_epoch": rows // run.prompts if rows is not None else None,
    }


def _memory(run: Run, memory: MemoryEstimate, card: Card | None) -> dict[str, object]:
    found: dict[str, object] = {
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
        room = cache_room(run, memory, card.gib)
        found |= {
            "card": card.name,
            "card_gib": card.gib,
            "kv_cache": round(room.gib, 1),
            "kv_cache_tokens": room.tokens,
            "kv_cache_full_sequences": room.sequences,
        }
    return found


def _disk(run: Run) -> dict[str, object] | None:
    needed = checkpoints_gib(run)
    if needed is None:
        return None
    size, count = needed
    return {"checkpoint_gib": round(size, 1), "checkpoints_at_once": count}


def as_text(report: Report) -> Iterator[str]:
    """The lines of the plan, then the problems, then the verdict."""
    for title, section in plan(report).items():
        if isinstance(section, dict):
            shown = ", ".join(
                f"{name.replace('_', ' ')} {_shown(item)}"
                for name, item in section.items()
                if item is not None
            )
            yield from _wrapped(title.replace("_", " "), shown)
    for note in report.notes:
        yield from _wrapped("not checked", note)
    for problem in report.problems:
        yield f"{problem.severity.upper()} {problem.check}: {problem.message}"
        yield f"    mend: {problem.fix}"
    errors, warnings = len(report.errors), len(report.problems) - len(report.errors)
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
