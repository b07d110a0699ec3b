"""Loaded into every process of a run with Megatron; writes down what the trainer and engine saw.

`$PROBE_DIR/steps.jsonl` gets one JSON a training step, `$PROBE_DIR/checkpoints.jsonl` one for each
checkpoint saved or loaded. It reads, and changes nothing.
"""

import hashlib
import json
import os
from pathlib import Path
from types import ModuleType

import torch
from wrapt import when_imported

FIELDS = ["uid", "prompts", "responses", "response_mask", "rm_scores", "advantages"]
FIELDS += ["old_log_probs", "rollout_log_probs"]


def _append(name: str, entry: dict) -> None:
    with (Path(os.environ["PROBE_DIR"]) / name).open("a") as file:
        file.write(json.dumps(entry) + "\n")


@when_imported("verl.trainer.ppo.v1.trainer_base")
def _record_steps(trainer_base: ModuleType) -> None:
    compute_advantage = trainer_base.PPOTrainer._compute_advantage

    def recorded(self, batch, metrics):
        batch = compute_advantage(self, batch, metrics)
        data = trainer_base.tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS
        )
        rows = []
        for i in range(len(batch.keys)):
            row = {name: data[name][i] for name in FIELDS}
            values = {k: v.tolist() if torch.is_tensor(v) else v for k, v in row.items()}
            mask = row["response_mask"].bool()
            values["read"] = self.tokenizer.decode(row["responses"][~mask])
            rows.append(values)
        _append("steps.jsonl", {"step": self.global_steps, "rows": rows})
        return batch

    trainer_base.PPOTrainer._compute_advantage = recorded


def _hash(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _moments(engine: object) -> dict[str, torch.Tensor]:
    tensors = {}
    for optimizer in engine.optimizer.chained_optimizers:
        for i, state in enumerate(optimizer.optimizer.state.values()):
            tensors |= {f"{i}.{name}": value.reshape(-1) for name, value in state.items()}
    return tensors


@when_imported("verl.workers.engine.megatron.transformer_impl")
def _record_checkpoints(transformer_impl: ModuleType) -> None:
    for method in ("save_checkpoint", "load_checkpoint"):
        original = getattr(transformer_impl.MegatronEngine, method)

        def recorded(self, *args, _original=original, _method=method, **kwargs):
            _original(self, *args, **kwargs)
            moments = _moments(self)
            entry = {
                "event": _method,
                "weights": _hash(dict(self.get_per_tensor_param()[0])),
                "optimizer": _hash(moments),
                "moments": len(moments),
            }
            _append("checkpoints.jsonl", entry)

        setattr(transformer_impl.MegatronEngine, method, recorded)
