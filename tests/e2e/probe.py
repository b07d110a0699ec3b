"""Loaded into every process of an end-to-end run; writes down what went through the real trainer.

`VERL_USE_EXTERNAL_MODULES=probe` with this folder on PYTHONPATH. One JSON a line is appended to
`$PROBE_DIR/steps.jsonl` for each training step, and to `$PROBE_DIR/state.jsonl` for each checkpoint
saved or loaded. It reads, and changes nothing.
"""

import hashlib
import json
import os
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
                    "written": self.tokenizer.decode(row["responses"][mask]),
                    "read": self.tokenizer.decode(row["responses"][~mask]),
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
        return batch

    trainer_base.PPOTrainer._compute_advantage = recorded


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
