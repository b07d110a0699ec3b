"""verl's Megatron engine trains a few steps, saves, resumes, and writes down what it saw.

    python ranks.py engine_worker FOLDER

For each layout and case of `problem.py`, whose model and batch are in FOLDER. Into FOLDER/tp2/CASE
go `exported.safetensors`, `log_probs.safetensors`, `steps.json` and the checkpoint of step 2.
"""

import importlib
import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed
import verl.trainer.config
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from problem import CASES, LAYOUTS
from ranks import in_ranks
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine import EngineRegistry
from verl.workers.engine.base import BaseEngine
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

STEPS, SAVED_AFTER = 4, 2
MICRO_BATCH = 4

OVERRIDES = f"""
model_engine=megatron
+actor_rollout_ref.actor.megatron.override_transformer_config.gradient_accumulation_fusion=False
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={MICRO_BATCH}
actor_rollout_ref.actor.use_dynamic_bsz=False
actor_rollout_ref.actor.optim.lr=1e-4
actor_rollout_ref.actor.optim.total_training_steps={STEPS}
actor_rollout_ref.rollout.name=vllm
algorithm.adv_estimator=ms_grpo
""".split()


def compose_config(overrides: list[str]) -> DictConfig:
    folder = str(Path(verl.trainer.config.__file__).parent)
    with initialize_config_dir(folder, version_base=None):
        return compose("ppo_trainer", overrides=overrides)


def build_engine(config: DictConfig, dtype: str) -> tuple[BaseEngine, object]:
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    # verl admits bfloat16 and float16 only. In float32 a conversion or a split that is wrong by
    # a little cannot hide behind rounding, so the tests of the engine go round that check.
    object.__setattr__(actor.engine, "dtype", dtype)
    model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    model.model_type = "language_model"
    engine = EngineRegistry.new(
        model_type="language_model",
        backend="megatron",
        model_config=model,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    engine.initialize()
    return engine, actor


def read_batch(path: Path, config: DictConfig) -> TensorDict:
    """The batch as verl's trainer hands it to the engine, with MS-GRPO's advantages."""
    tensors = load_file(path)
    uids = np.array([f"prompt-{i}" for i in tensors.pop("group").tolist()], dtype=object)
    estimate = get_adv_estimator_fn(config.algorithm.adv_estimator)
    tensors["advantages"], _ = estimate(
        token_level_rewards=tensors.pop("token_level_rewards"),
        response_mask=tensors["response_mask"],
        index=uids,
        config=config.algorithm,
    )
    data = left_right_2_no_padding(TensorDict(tensors, batch_size=[len(uids)]))
    tu.assign_non_tensor(
        data,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=MICRO_BATCH,
        calculate_entropy=True,
        temperature=1.0,
        global_batch_size=len(uids),
    )
    return data


def log_probs(engine: BaseEngine, data: TensorDict) -> torch.Tensor | None:
    """(bs, T) of the responses; None on stages of the pipeline before the last one."""
    data = data.clone()
    with engine.eval_mode():
        output = engine.infer_batch(data)
    if not output:
        return None
    return no_padding_2_padding(output["model_output"]["log_probs"], data).contiguous()


def train(engine: BaseEngine, actor: object, data: TensorDict, steps: int) -> list[dict]:
    seen = []
    for _ in range(steps):
        with engine.train_mode():
            output = engine.train_batch(data.clone(), partial(ppo_loss, actor))
        engine.lr_scheduler_step()
        if engine.is_mp_src_rank_with_outputs():
            seen.append({"loss": sum(output["loss"]), "grad_norm": output["metrics"]["grad_norm"]})
    return seen


def run_case(folder: Path, layout: str, name: str, config: DictConfig) -> None:
    out = folder / layout / name
    config.actor_rollout_ref.model.path = str(folder / name)
    megatron = config.actor_rollout_ref.actor.megatron
    megatron.tensor_model_parallel_size = LAYOUTS[layout].tp
    megatron.pipeline_model_parallel_size = LAYOUTS[layout].pp
    megatron.use_remove_padding = CASES[name].packed
    data = read_batch(folder / "batch.safetensors", config)
    engine, actor = build_engine(config, "float32")
    with engine.eval_mode():
        exported = {name: tensor.clone() for name, tensor in engine.get_per_tensor_param()[0]}
    seen = {"before": log_probs(engine, data)}
    if seen["before"] is not None:  # else this stage of the pipeline computes no loss either
        data["old_log_probs"] = seen["before"]

    steps = train(engine, actor, data, SAVED_AFTER)
    seen["saved"] = log_probs(engine, data)
    engine.save_checkpoint(str(out / "checkpoint"), global_step=SAVED_AFTER)
    steps += train(engine, actor, data, STEPS - SAVED_AFTER)
    seen["after"] = log_probs(engine, data)

    # From the model's first weights, as a new process would begin.
    resumed, actor = build_engine(config, "float32")
    resumed.load_checkpoint(str(out / "checkpoint"), del_local_after_load=False)
    seen["loaded"] = log_probs(resumed, data)
    steps_resumed = train(resumed, actor, data, STEPS - SAVED_AFTER)
    seen["resumed"] = log_probs(resumed, data)

    if torch.distributed.get_rank() == 0:
        save_file(exported, out / "exported.safetensors")
    if engine.is_mp_src_rank_with_outputs():
        save_file(seen, out / "log_probs.safetensors")
        result = {"steps": steps, "resumed": steps_resumed}
        (out / "steps.json").write_text(json.dumps(result))


def run_cases(folder: Path, layout: str, config: DictConfig) -> None:
    for name in CASES:
        run_case(folder, layout, name, config.copy())


def main(folder: Path) -> None:
    importlib.import_module("verl.models.mcore.bridge")  # else each rank does
    config = compose_config(OVERRIDES)
    for name, layout in LAYOUTS.items():
        in_ranks(layout.tp * layout.pp, run_cases, folder, name, config)
