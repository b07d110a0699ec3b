"""Loaded into every process of an end-to-end run; writes down what went through the real trainer.

`VERL_USE_EXTERNAL_MODULES=probe` with this folder on PYTHONPATH. In `$PROBE_DIR`, one JSON per line
is appended to `steps.jsonl` for each training step, to `state.jsonl` for each checkpoint saved or
loaded, and to `turns.jsonl` for each turn that vLLM has sampled. It reads, and changes nothing; but
a run with `$PROBE_HOLD_AT=N` stays in its step N until it is killed.
"""

import hashlib
import json
import os
import time
from itertools import groupby
from pathlib import Path
from types import ModuleType

import torch
from wrapt import when_imported


def _append(name: str, entry: dict) -> None:
    with (Path(os.environ["PROBE_DIR"]) / name).open("a") as file:
        file.write(json.dumps(entry) + "\n")


@when_imported("verl.trainer.ppo.v1.trainer_base")
def _record_steps(trainer_base: ModuleType) -> None:
    compute_advantage = trainer_base.PPOTrainer._compute_advantage

    def recorded(self, batch, metrics):
        batch = compute_advantage(self, batch, metrics)
        fields = ["uid", "prompts", "responses", "response_mask", "rm_scores", "advantages"]
        fields += ["old_log_probs", "rollout_log_probs"]
        data = trainer_base.tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=fields
        )
        rows = []
        for i, key in enumerate(batch.keys):
            row = {name: data[name][i] for name in fields}
            mask = row["response_mask"].bool()
            rows.append(
                {
                    "key": key,
                    "uid": row["uid"],
                    "prompt": self.tokenizer.decode(row["prompts"]),
                    "prompt_ids": row["prompts"].tolist(),
                    "response_ids": row["responses"].tolist(),
                    "response_mask": row["response_mask"].tolist(),
                    "rollout_log_probs": row["rollout_log_probs"].tolist(),
                    "written": self.tokenizer.decode(row["responses"][mask]),
                    "read": self.tokenizer.decode(row["responses"][~mask]),
                    "written_turns": _turns(row["responses"].tolist(), mask.tolist()),
                    "reward": row["rm_scores"].sum().item(),
                    "advantage": row["advantages"][mask].unique().tolist(),
                    "advantage_outside": row["advantages"][~mask].abs().sum().item(),
                    "log_prob_difference": (row["old_log_probs"] - row["rollout_log_probs"])[mask]
                    .abs()
                    .mean()
                    .item(),
                }
            )
        _append("steps.jsonl", {"step": self.global_steps, "rows": rows})
        while str(self.global_steps) == os.environ.get("PROBE_HOLD_AT"):
            time.sleep(60)
        return batch

    trainer_base.PPOTrainer._compute_advantage = recorded


def _turns(ids: list[int], mask: list[bool]) -> list[list[int]]:
    """The ids under each run of ones in the mask."""
    runs = groupby(zip(ids, mask, strict=True), key=lambda token: token[1])
    return [[token for token, _ in run] for written, run in runs if written]


@when_imported("verl.workers.rollout.llm_server")
def _record_turns(llm_server: ModuleType) -> None:
    original = llm_server.LLMServerClient.generate

    async def generate(self, request_id, *, prompt_ids, **kwargs):
        prompt = list(prompt_ids)
        output = await original(self, request_id, prompt_ids=prompt_ids, **kwargs)
        _append(
            "turns.jsonl",
            {"rollout": request_id, "prompt": prompt, "sampled": list(output.token_ids)},
        )
        return output

    llm_server.LLMServerClient.generate = generate


def _hash(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        digest.update(name.encode())
        digest.update(local.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _state(engine: object) -> dict:
    moments = {}
    for i, state in enumerate(engine.optimizer.state.values()):
        moments |= {f"{i}.{name}": torch.as_tensor(v).reshape(-1) for name, v in state.items()}
    return {
        "rank": int(os.environ.get("RANK", 0)),
        "weights": _hash({name: p.reshape(-1) for name, p in engine.module.state_dict().items()}),
        "optimizer": _hash(moments),
        "moments": len(moments),
        "lr": engine.lr_scheduler.get_last_lr(),
    }


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def _record_checkpoints(transformer_impl: ModuleType) -> None:
    for method in ("save_checkpoint", "load_checkpoint"):
        original = getattr(transformer_impl.FSDPEngine, method)

        def recorded(self, *args, _original=original, _method=method, **kwargs):
            done = _original(self, *args, **kwargs)
            _append("state.jsonl", {"event": _method, **_state(self)})
            return done

        setattr(transformer_impl.FSDPEngine, method, recorded)
