"""Loads the checkpoint that `main_ppo` saved last; run_probe.py writes down what came of it.

    python ranks.py resume_worker FOLDER

FOLDER has the model in `data/model` and the checkpoint in `checkpoints/global_step_2`.
"""

from pathlib import Path

from engine_worker import build_engine, compose_config
from main_ppo import OVERRIDES
from omegaconf import DictConfig
from ranks import in_ranks


def load(folder: Path, config: DictConfig) -> None:
    engine, _ = build_engine(config, "bfloat16")
    checkpoint = folder / "checkpoints/global_step_2/actor"
    engine.load_checkpoint(str(checkpoint), del_local_after_load=False)


def main(folder: Path) -> None:
    here = [
        f"actor_rollout_ref.model.path={folder}/data/model",
        "actor_rollout_ref.actor.optim.total_training_steps=2",
    ]
    in_ranks(1, load, folder, compose_config([*OVERRIDES, *here]))
