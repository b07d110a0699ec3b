"""The HotpotQA recipe without a GPU: the command that verl gets, and the script's checks."""

import contextlib
import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.search.fakes import retrieval_server

pytest.importorskip("verl")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "search_hotpotqa"
SCRIPT = FOLDER / "run_qwen2_5_7b_megatron.sh"
START = ["python3", "-m", "verl.trainer.main_ppo"]


def launch(*overrides, path="", **knobs):
    """Runs the script, in an environment that holds nothing but the knobs."""
    environment = {
        "PATH": f"{path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": "/nonexistent",
        **{name: str(value) for name, value in knobs.items()},
    }
    return subprocess.run(
        ["bash", str(SCRIPT), *overrides], env=environment, capture_output=True, text=True
    )


def dry_run(*overrides, **knobs):
    """The Hydra overrides that the script would start verl with."""
    done = launch(*overrides, DRY_RUN=1, **knobs)
    assert done.returncode == 0, done.stderr
    command = done.stdout.splitlines()
    assert command[:3] == START
    return command[3:]


def refused(**knobs):
    """The one line with which the script refuses the knobs."""
    done = launch(DRY_RUN=1, **knobs)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{SCRIPT.name}: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


# --- verl's own configuration ---------------------------------------------------------------------


def validated(overrides):
    """Composes and validates as main_ppo and its workers do: (config, actor, ref)."""
    import verl.trainer.config
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf, open_dict
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    folder = str(Path(verl.trainer.config.__file__).parent)
    with initialize_config_dir(folder, version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    OmegaConf.resolve(config)
    with contextlib.redirect_stdout(io.StringIO()):
        validate_config(config, need_reference_policy(config), need_critic(config))
    assert need_reference_policy(config)
    assert not need_critic(config)
    ref = config.actor_rollout_ref.ref
    with open_dict(ref):  # verl/workers/engine_workers.py, before it builds the reference model
        ref.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
        ref.ppo_micro_batch_size = ref.pop("log_prob_micro_batch_size")
        ref.ppo_micro_batch_size_per_gpu = ref.pop("log_prob_micro_batch_size_per_gpu")
        ref.use_dynamic_bsz = ref.pop("log_prob_use_dynamic_bsz")
        ref.ppo_max_token_len_per_gpu = ref.pop("log_prob_max_token_len_per_gpu")
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    return config, actor, omega_conf_to_dataclass(ref)


@pytest.mark.parametrize("estimator", ["ms_grpo", "grpo"])
def test_megatron_composes_and_validates(estimator):
    overrides = dry_run(ADV_ESTIMATOR=estimator)
    config, actor, ref = validated(overrides)
    assert config.algorithm.adv_estimator == estimator
    assert actor.strategy == "megatron"
    for engine in (actor.engine, ref.engine):
        assert engine.tensor_model_parallel_size == 4
        assert engine.pipeline_model_parallel_size == engine.context_parallel_size == 1
        assert engine.param_offload
        assert engine.use_mbridge  # L03
        assert not engine.vanilla_mbridge
    assert "actor_rollout_ref.actor.megatron.use_mbridge=True" in overrides
    assert actor.engine.optimizer_offload
    assert actor.engine.override_transformer_config["recompute_granularity"] == "full"
    assert actor.optim.lr == 1e-6
    assert actor.rollout_n == 8


@pytest.mark.parametrize("estimator", ["ms_grpo", "grpo"])
def test_fsdp_composes_and_validates(estimator):
    config, actor, ref = validated(dry_run(ADV_ESTIMATOR=estimator, BACKEND="fsdp", ACTOR_CP=2))
    assert config.algorithm.adv_estimator == estimator
    for engine in (actor.engine, ref.engine):
        assert engine.strategy == "fsdp2"
        assert engine.ulysses_sequence_parallel_size == 2
        assert engine.param_offload
    assert actor.engine.optimizer_offload
    assert actor.optim.lr == 1e-6


def test_knobs_arrive_on_two_nodes():
    url = "http://10.0.0.5:8000/retrieve?tenant=a"
    config, actor, _ = validated(
        dry_run(
            "trainer.total_training_steps=7",
            "+algorithm.ms_grpo.preset=paper",
            NNODES=2,
            ACTOR_TP=2,
            ACTOR_PP=2,
            ACTOR_CP=2,
            ROLLOUT_TP=4,
            ROLLOUT_N=4,
            TOTAL_STEPS=40,
            MODEL_PATH="/models/other",
            MAX_PROMPT_LENGTH=512,
            MAX_RESPONSE_LENGTH=2000,
            REWARD_METRIC="em",
            RETRIEVAL_SERVICE_URL=url,
        )
    )
    engine = actor.engine
    assert engine.tensor_model_parallel_size == engine.pipeline_model_parallel_size == 2
    assert engine.context_parallel_size == 2
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (2, 8)
    assert config.actor_rollout_ref.rollout.tensor_model_parallel_size == 4
    assert config.actor_rollout_ref.rollout.n == 4
    assert config.actor_rollout_ref.rollout.max_model_len == 2512
    assert config.actor_rollout_ref.model.path == "/models/other"
    assert config.trainer.total_training_steps == 7  # "$@" comes last
    assert config.algorithm.ms_grpo.preset == "paper"
    assert config.reward.custom_reward_function.reward_kwargs == {"metric": "em"}
    workers = config.ray_kwargs.ray_init.runtime_env.env_vars
    assert workers["RETRIEVAL_SERVICE_URL"] == url


@pytest.mark.parametrize("backend", ["megatron", "fsdp"])
def test_both_estimators_train_with_the_same_settings(backend):
    ours, baseline = (
        dry_run(ADV_ESTIMATOR=estimator, BACKEND=backend, EXPERIMENT_NAME="x")
        for estimator in ("ms_grpo", "grpo")
    )
    assert [pair for pair in zip(ours, baseline, strict=True) if pair[0] != pair[1]] == [
        ("algorithm.adv_estimator=ms_grpo", "algorithm.adv_estimator=grpo")
    ]


def test_nothing_is_written_over():
    """No two runs of different settings share a folder, and no key is set twice."""
    folders = {
        next(a for a in dry_run(ADV_ESTIMATOR=estimator, SEED=seed) if "default_local_dir" in a)
        for estimator in ("ms_grpo", "grpo")
        for seed in (0, 1)
    }
    assert len(folders) == 4
    keys = [argument.partition("=")[0] for argument in dry_run()]
    assert len(keys) == len(set(keys))


def test_the_search_tool_is_set_up_and_every_row_would_search(monkeypatch):
    from omegaconf import OmegaConf

    from verl_msgrpo.search.settings import read_settings

    config, _, _ = validated(dry_run())
    rollout = config.actor_rollout_ref.rollout
    assert rollout.agent.default_agent_loop == "search_tool_agent"  # T20
    assert rollout.multi_turn.enable
    assert rollout.multi_turn.max_assistant_turns == 5
    monkeypatch.setenv("RETRIEVAL_SERVICE_URL", "http://host:1/retrieve")
    (tool,) = OmegaConf.load(rollout.multi_turn.tool_config_path).tools
    settings = read_settings(OmegaConf.to_container(tool.config, resolve=True))
    assert settings.client.url == "http://host:1/retrieve"
    # Every observation fits: what the model may be shown leaves it room to write.
    searches = rollout.multi_turn.max_assistant_turns - 1
    assert searches * settings.max_observation_tokens <= rollout.response_length / 2


# --- Checks of the script -------------------------------------------------------------------------


def test_l01_one_gpu():
    assert "4 x 1 x 1 = 4 does not divide NNODES x NGPUS_PER_NODE = 1 x 1 = 1 GPUs" in refused(
        NGPUS_PER_NODE=1
    )
    assert "ROLLOUT_TP = 2 does not divide NGPUS_PER_NODE = 1" in refused(
        NGPUS_PER_NODE=1, ACTOR_TP=1, ROLLOUT_TP=2
    )
    config, _, _ = validated(dry_run(NGPUS_PER_NODE=1, ACTOR_TP=1))
    assert config.actor_rollout_ref.rollout.tensor_model_parallel_size == 1


@pytest.mark.parametrize(
    ("knobs", "sums"),
    [
        ({"ACTOR_TP": 3}, "3 x 1 x 1 = 3 does not divide NNODES x NGPUS_PER_NODE = 1 x 8 = 8"),
        ({"ACTOR_PP": 4}, "4 x 4 x 1 = 16 does not divide NNODES x NGPUS_PER_NODE = 1 x 8 = 8"),
        ({"ACTOR_CP": 3}, "4 x 1 x 3 = 12 does not divide"),
        ({"BACKEND": "fsdp", "ACTOR_CP": 3}, "1 x 1 x 3 = 3 does not divide"),
        ({"NNODES": 3, "ACTOR_PP": 4}, "= 16 does not divide NNODES x NGPUS_PER_NODE = 3 x 8 = 24"),
        ({"ROLLOUT_TP": 16}, "ROLLOUT_TP = 16 does not divide NGPUS_PER_NODE = 8"),
        ({"ROLLOUT_TP": 3}, "ROLLOUT_TP = 3 does not divide NGPUS_PER_NODE = 8"),
    ],
)
def test_l02_gpus(knobs, sums):
    assert sums in refused(**knobs)


@pytest.mark.parametrize(
    ("knobs", "sums"),
    [
        (
            {"TRAIN_BATCH_SIZE": 30, "ROLLOUT_N": 5, "ACTOR_TP": 1},
            "30 x 5 = 150 is not a multiple of the data-parallel ranks = 8 / 1 = 8",
        ),
        (
            {"PPO_MINI_BATCH_SIZE": 4, "ROLLOUT_N": 3, "BACKEND": "fsdp"},
            "4 x 3 = 12 is not a multiple of the data-parallel ranks = 8 / 1 = 8",
        ),
        (
            {"PPO_MINI_BATCH_SIZE": 96},
            "TRAIN_BATCH_SIZE = 256 is not a multiple of PPO_MINI_BATCH_SIZE = 96",
        ),
        ({"TRAIN_BATCH_SIZE": 64}, "64 is not a multiple of PPO_MINI_BATCH_SIZE = 128"),
    ],
)
def test_l05_batches(knobs, sums):
    assert sums in refused(**knobs)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"ADV_ESTIMATOR": "msgrpo"}, "ADV_ESTIMATOR=msgrpo: ms_grpo or grpo"),
        ({"BACKEND": "fsdp2"}, "BACKEND=fsdp2: megatron or fsdp"),
        ({"BACKEND": "fsdp", "ACTOR_TP": 2}, "no ACTOR_TP=2"),
        ({"ROLLOUT_N": 1}, "ROLLOUT_N=1"),
        ({"ROLLOUT_N": 0}, "ROLLOUT_N=0 is not a whole number above 0"),
        ({"ACTOR_TP": "two"}, "ACTOR_TP=two is not a whole number above 0"),
        ({"NNODES": "a[$(id)]"}, "is not a whole number above 0"),
        ({"NNODES": 2}, "the other nodes cannot reach a loopback address"),
    ],
)
def test_other_knobs(knobs, words):
    assert words in refused(**knobs)


@pytest.fixture
def ready(tmp_path):
    """Knobs for a start in which `python3 -m ...` only prints its arguments."""
    for name in ("train.parquet", "validation.parquet", "reward.py"):
        (tmp_path / name).touch()
    stand_in = tmp_path / "bin" / "python3"
    stand_in.parent.mkdir()
    stand_in.write_text(
        '#!/bin/sh\n[ "$1" = -m ] && exec printf "%s\\n" "$@"\n' + f'exec {sys.executable} "$@"\n'
    )
    stand_in.chmod(0o755)
    return {
        "DATA_DIR": tmp_path,
        "REWARD_FN": tmp_path / "reward.py",
        "OUTPUT_DIR": tmp_path,
        "path": stand_in.parent,
    }


def test_l08_server_not_up(ready):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/retrieve"
    done = launch(RETRIEVAL_SERVICE_URL=url, **ready)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert url in done.stderr


def test_starts_what_the_dry_run_shows(ready):
    with retrieval_server() as server:
        done = launch("a=b c", RETRIEVAL_SERVICE_URL=server.url, **ready)
        assert server.asked
    assert done.returncode == 0, done.stderr
    shown = launch("a=b c", RETRIEVAL_SERVICE_URL=server.url, DRY_RUN=1, **ready)
    assert done.stdout.splitlines() == shown.stdout.splitlines()[1:]
    assert done.stdout.splitlines()[-1] == "a=b c"


@pytest.mark.parametrize("name", ["train.parquet", "validation.parquet", "reward.py"])
def test_missing_file(ready, name):
    (ready["DATA_DIR"] / name).unlink()
    done = launch(**ready)
    assert done.returncode == 2
    assert f"{name} does not exist" in done.stderr
    assert done.stderr.count("\n") == 1
