"""verl's FSDP2 engine trains a step in two ranks, saves a checkpoint, and writes what it saw.

    python ranks.py fsdp_worker FOLDER

As engine_worker.py, for the model `untied` and without Megatron. Into FOLDER/fsdp2 go the
checkpoint of that step, the weights and the log-probs before and after.
"""

from functools import partial
from pathlib import Path

import torch
import torch.distributed
from engine_worker import compose_config, read_batch
from omegaconf import DictConfig
from ranks import in_ranks
from safetensors.torch import save_file
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

OVERRIDES = [
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.fsdp_config.model_dtype=float32",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.use_dynamic_bsz=False",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "actor_rollout_ref.actor.optim.total_training_steps=2",
    "actor_rollout_ref.rollout.name=vllm",
    "algorithm.adv_estimator=ms_grpo",
]


def run(folder: Path, config: DictConfig) -> None:
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    engine = EngineRegistry.new(
        model_type="language_model",
        backend="fsdp2",
        model_config=model,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    engine.initialize()
    data = read_batch(folder / "batch.safetensors", config).chunk(ranks)[rank]

    def log_probs() -> torch.Tensor:
        with engine.eval_mode():
            output = engine.infer_batch(data.clone())
        return no_padding_2_padding(output["model_output"]["log_probs"], data).contiguous()

    data["old_log_probs"] = before = log_probs()
    with engine.train_mode():
        engine.train_batch(data.clone(), partial(ppo_loss, actor))
    engine.save_checkpoint(str(folder / "fsdp2/checkpoint"), global_step=1)
    exported = {name: tensor.clone() for name, tensor in engine.get_per_tensor_param()[0]}
    if rank == 0:
        save_file(exported, folder / "fsdp2/exported.safetensors")
    for name, mine in {"before": before, "saved": log_probs()}.items():
        parts = [torch.empty_like(mine) for _ in range(ranks)]
        torch.distributed.all_gather(parts, mine)
        if rank == 0:
            save_file({"log_probs": torch.cat(parts)}, folder / f"fsdp2/{name}.safetensors")


def main(folder: Path) -> None:
    model_path = f"actor_rollout_ref.model.path={folder}/untied"
    in_ranks(2, run, folder, compose_config([*OVERRIDES, model_path]))
