"""A run of `main_ppo model_engine=megatron`: the quickstart's policy, search and questions."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "examples/quickstart"
CLI = [sys.executable, "-m", "verl_msgrpo.cli"]
PROMPTS, GROUP = 8, 8
LIMIT_S = 1800  # for what takes a minute at most on two cores that do nothing else

OVERRIDES = f"""
model_engine=megatron
algorithm.adv_estimator=ms_grpo
data.train_batch_size={PROMPTS}
data.max_prompt_length=48
data.max_response_length=192
data.seed=0
data.dataloader_num_workers=0
actor_rollout_ref.model.enable_gradient_checkpointing=False
+actor_rollout_ref.actor.megatron.override_transformer_config.gradient_accumulation_fusion=False
actor_rollout_ref.actor.optim.lr=2e-4
actor_rollout_ref.actor.use_kl_loss=False
actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={PROMPTS * GROUP}
actor_rollout_ref.actor.use_dynamic_bsz=False
actor_rollout_ref.rollout.name=vllm
actor_rollout_ref.rollout.n={GROUP}
actor_rollout_ref.rollout.tensor_model_parallel_size=1
actor_rollout_ref.rollout.dtype=bfloat16
actor_rollout_ref.rollout.load_format=auto
actor_rollout_ref.rollout.enforce_eager=True
actor_rollout_ref.rollout.max_model_len=256
actor_rollout_ref.rollout.max_num_seqs=64
actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={PROMPTS * GROUP}
actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=32
+actor_rollout_ref.rollout.enable_sleep_mode=False
actor_rollout_ref.rollout.free_cache_engine=False
actor_rollout_ref.rollout.agent.num_workers=1
actor_rollout_ref.rollout.agent.default_agent_loop=search_tool_agent
actor_rollout_ref.rollout.multi_turn.enable=True
actor_rollout_ref.rollout.multi_turn.format=hermes
actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4
actor_rollout_ref.rollout.multi_turn.max_user_turns=4
reward.num_workers=1
reward.custom_reward_function.name=compute_score
trainer.device=cpu
trainer.nnodes=1
trainer.n_gpus_per_node=1
trainer.logger=[console,file]
trainer.total_epochs=1000
trainer.val_before_train=False
trainer.test_freq=-1
trainer.total_training_steps=2
trainer.save_freq=1
trainer.resume_mode=disable
trainer.v1.sampler.custom_sampler.name=FastPollingReplayBuffer
transfer_queue.backend.SimpleStorage.num_data_storage_units=1
+ray_kwargs.ray_init.num_gpus=1
ray_kwargs.ray_init.num_cpus=16
+ray_kwargs.ray_init.include_dashboard=False
""".split()


def arguments(folder: Path) -> list[str]:
    """Of Python. In `folder` are the policy and the questions, in `data`; checkpoints go there."""
    data = folder / "data"
    files = [
        f"data.train_files={data}/train.parquet",
        f"data.val_files={data}/val.parquet",
        f"actor_rollout_ref.model.path={data}/model",
        "actor_rollout_ref.rollout.multi_turn.tool_config_path="
        f"{ROOT}/verl_msgrpo/search/config/search_tool.yaml",
        f"reward.custom_reward_function.path={QUICKSTART}/reward.py",
        f"trainer.default_local_dir={folder}/checkpoints",
        f"trainer.v1.sampler.custom_sampler.path={QUICKSTART}/fast_polling.py",
    ]
    return ["-m", "verl.trainer.main_ppo", *OVERRIDES, *files]


def prepare(folder: Path) -> None:
    """Into `folder`: the policy with a short warm start, the questions, and the search index."""
    data = folder / "data"
    if not data.is_dir():
        command = [sys.executable, str(QUICKSTART / "prepare.py"), "--out", str(data)]
        subprocess.run(command, check=True, timeout=LIMIT_S)
    index = ["index", "--corpus", str(data / "corpus.jsonl"), "--output", str(folder / "index")]
    subprocess.run([*CLI, *index], check=True, timeout=LIMIT_S)


@contextmanager
def retrieval_server(folder: Path) -> Iterator[str]:
    """Serves the index; gives the URL."""
    port = folder / "port"
    serve = ["serve", "--index", str(folder / "index"), "--port", "0", "--port-file", str(port)]
    with subprocess.Popen([*CLI, *serve]) as server:
        try:
            deadline = time.monotonic() + LIMIT_S
            while not port.exists() or not port.read_text():
                assert server.poll() is None, "the retrieval server ended"
                assert time.monotonic() < deadline, "the retrieval server did not start"
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port.read_text().strip()}/retrieve"
        finally:
            server.terminate()


@dataclass(frozen=True)
class MegatronRun:
    """What the run wrote into its folder, and what run_probe.py saw."""

    folder: Path

    def _read(self, name: str) -> list[dict]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    @property
    def steps(self) -> list[dict]:
        return self._read("steps.jsonl")

    @property
    def checkpoints(self) -> list[dict]:
        """One entry for each that was saved or loaded, in order."""
        return self._read("checkpoints.jsonl")

    @property
    def metrics(self) -> list[dict]:
        data = [entry["data"] for entry in self._read("metrics.jsonl")]
        return [entry for entry in data if "actor/grad_norm" in entry]
