"""Every recipe's command, for every model, back end and estimator, without a GPU."""

import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.preflight.recipes import (
    PRESETS,
    RECIPES,
    ROOT,
    START,
    launch,
    overrides_of,
    stand_in,
    write_data,
)
from tests.search.fakes import retrieval_server
from verl_msgrpo.preflight.memory import CARDS, Card

pytest.importorskip("verl")
pytest.importorskip("math_verify")

from verl_msgrpo.preflight import compose, reward, services
from verl_msgrpo.preflight.checks import check_config
from verl_msgrpo.preflight.compose import compose_config
from verl_msgrpo.rewards import code_tests
from verl_msgrpo.rewards.code import fusion
from verl_msgrpo.rewards.code.runner import End
from verl_msgrpo.search.settings import read_settings

H100 = Card("h100", CARDS["h100"])
BACKENDS = ("megatron", "fsdp")
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Data of every task, and of search for each agent loop."""
    folder = tmp_path_factory.mktemp("data")
    for recipe in RECIPES:
        write_data(recipe, folder / recipe)
    write_data("search_hotpotqa", folder / "search_r1_agent", agent="search_r1_agent")
    return folder


@pytest.fixture(scope="module")
def server():
    with retrieval_server() as running:
        yield running


@pytest.fixture(autouse=True)
def patient_machine(monkeypatch):
    """A large disk, and time for what a busy machine does slowly."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**42, 0, 2**42))
    monkeypatch.setattr(reward, "TRIAL_LIMIT_S", 120.0)
    monkeypatch.setattr(services, "PROBE_LIMIT_S", 60.0)


def knobs_for(recipe, model, data, server, tmp_path):
    folder = data / recipe
    if recipe == "search_hotpotqa" and model != PRESETS[0]:
        folder = data / "search_r1_agent"
    return {
        "MODEL_PATH": model,
        "DATA_DIR": folder,
        "OUTPUT_DIR": tmp_path / "out",
        "RETRIEVAL_SERVICE_URL": server.url,
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", PRESETS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_launch_is_sound(recipe, model, backend, data, server, tmp_path):
    """Nothing is found for either estimator, and the two commands differ in its name only."""
    knobs = knobs_for(recipe, model, data, server, tmp_path) | {"BACKEND": backend}
    ours, baseline = (
        overrides_of(recipe, tmp_path, ADV_ESTIMATOR=name, EXPERIMENT_NAME="x", **knobs)
        for name in ("ms_grpo", "grpo")
    )
    assert [pair for pair in zip(ours, baseline, strict=True) if pair[0] != pair[1]] == [
        ("algorithm.adv_estimator=ms_grpo", "algorithm.adv_estimator=grpo")
    ]
    keys = [argument.partition("=")[0] for argument in ours]
    assert len(keys) == len(set(keys))
    config, unknown = compose_config(ours)
    assert config is not None
    assert unknown == []
    for estimator in ("ms_grpo", "grpo"):
        config.algorithm.adv_estimator = estimator
        report = check_config(config, H100)
        assert report.problems == []
        assert report.notes == []
        launched = report.launch
        assert launched is not None
        assert launched.model is not None
        assert launched.strategy == ("megatron" if backend == "megatron" else "fsdp2")
        assert launched.n == 8
        assert launched.gpus == 8
        if backend == "megatron":
            assert launched.model.kv_heads % launched.tp == 0
        assert report.memory is not None
        assert report.memory.training < H100.gib
    assert "actor_rollout_ref.rollout.name=vllm" in ours
    if backend == "megatron":
        assert "actor_rollout_ref.actor.megatron.use_mbridge=True" in ours


# --- Knobs ----------------------------------------------------------------------------------------


def composed(overrides):
    config, problems = compose_config(overrides)
    assert problems == []
    return config


def test_knobs_arrive_on_two_nodes(tmp_path):
    url = "http://10.0.0.5:8000/retrieve?tenant=a"
    config = composed(
        overrides_of(
            "search_hotpotqa",
            tmp_path,
            "trainer.total_training_steps=7",
            "+algorithm.ms_grpo.preset=paper",
            NNODES=2,
            ACTOR_TP=2,
            ACTOR_PP=2,
            ACTOR_CP=2,
            ROLLOUT_TP=4,
            ROLLOUT_N=4,
            TOTAL_STEPS=40,
            MODEL_PATH="/models/other one",
            MAX_PROMPT_LENGTH=512,
            MAX_RESPONSE_LENGTH=2000,
            REWARD_METRIC="em",
            AGENT="search_r1_agent",
            RETRIEVAL_SERVICE_URL=url,
        )
    )
    model = config.actor_rollout_ref
    for engine in (model.actor.megatron, model.ref.megatron):
        assert engine.tensor_model_parallel_size == engine.pipeline_model_parallel_size == 2
        assert engine.context_parallel_size == 2
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (2, 8)
    assert model.rollout.tensor_model_parallel_size == 4
    assert model.rollout.n == 4
    assert model.rollout.max_model_len == 2512
    assert model.model.path == "/models/other one"
    assert model.rollout.agent.default_agent_loop == "search_r1_agent"
    assert config.trainer.total_training_steps == 7  # "$@" comes last
    assert config.algorithm.ms_grpo.preset == "paper"
    assert config.reward.custom_reward_function.reward_kwargs == {"metric": "em"}
    assert url == config.ray_kwargs.ray_init.runtime_env.env_vars.RETRIEVAL_SERVICE_URL


def test_fsdp_knobs(tmp_path):
    config = composed(
        overrides_of("math_aime24", tmp_path, BACKEND="fsdp", ACTOR_CP=2, OFFLOAD="False")
    )
    actor, ref = config.actor_rollout_ref.actor, config.actor_rollout_ref.ref
    assert actor.strategy == "fsdp2"
    for engine in (actor.fsdp_config, ref.fsdp_config):
        assert engine.ulysses_sequence_parallel_size == 2
        assert not engine.param_offload
    assert config.actor_rollout_ref.rollout.val_kwargs.n == 16
    assert config.reward.custom_reward_function.reward_kwargs == {"format_bonus": 0.1}


def test_programs_get_their_time_and_verls_sandbox_server(tmp_path):
    def reward_kwargs(*overrides, **knobs):
        config = composed(overrides_of("code_livecodebench", tmp_path, *overrides, **knobs))
        return config.reward.custom_reward_function.reward_kwargs

    alone = {"partial": True, "timeout_s": 10, "sandbox_fusion_url": None}
    assert reward_kwargs() == alone
    url = "http://10.0.0.5:8080/run_code"
    given = reward_kwargs(f"reward.sandbox_fusion.url={url}", TIMEOUT_S=60)
    assert given == {**alone, "timeout_s": 60, "sandbox_fusion_url": url}


def test_verl_calls_the_reward_with_its_sandbox_server(tmp_path, monkeypatch):
    """Where the interpolation is still one, as in verl's reward workers."""
    from verl.trainer.ppo.reward import get_custom_reward_fn

    asked = []
    monkeypatch.setattr(fusion, "run", lambda url, *_: asked.append(url) or End(timeout=False))
    url = "http://10.0.0.5:8080/run_code"
    overrides = overrides_of("code_livecodebench", tmp_path, f"reward.sandbox_fusion.url={url}")
    score = get_custom_reward_fn(compose._compose(overrides))
    truth = RECIPES["code_livecodebench"][1]
    result = score("livecodebench", "```python\nprint(1)\n```", truth, {})
    assert asked == [url]
    assert result["error"] == 0


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_two_runs_share_a_folder(recipe, tmp_path):
    settings = [
        {"ADV_ESTIMATOR": estimator, "SEED": seed, "BACKEND": backend, "MODEL_PATH": model}
        for estimator in ("ms_grpo", "grpo")
        for seed in (0, 1)
        for backend in BACKENDS
        for model in PRESETS[:2]
    ]
    folders = {
        next(a for a in overrides_of(recipe, tmp_path, **knobs) if "default_local_dir" in a)
        for knobs in settings
    }
    assert len(folders) == len(settings)


def test_observations_leave_room_to_write(tmp_path, monkeypatch):
    rollout = composed(overrides_of("search_hotpotqa", tmp_path)).actor_rollout_ref.rollout
    assert rollout.agent.default_agent_loop == "search_tool_agent"
    assert rollout.multi_turn.enable
    monkeypatch.setenv("RETRIEVAL_SERVICE_URL", "http://host:1/retrieve")
    (tool,) = OmegaConf.load(rollout.multi_turn.tool_config_path).tools
    settings = read_settings(OmegaConf.to_container(tool.config, resolve=True))
    searches = rollout.multi_turn.max_assistant_turns - 1
    assert searches * settings.max_observation_tokens <= rollout.response_length / 2


@pytest.mark.parametrize(
    ("knob", "bad", "message"),
    [
        ("ADV_ESTIMATOR", "msgrpo", "'msgrpo'"),
        ("NNODES", "a[$(id >&2)]", "trainer.nnodes=a[$(id >&2)]"),
        ("NGPUS_PER_NODE", "0", "trainer.n_gpus_per_node: allowed is an integer >= 1, got '0'"),
        ("ROLLOUT_N", "1", "n is 1"),
        ("ACTOR_TP", "3", "3 x 1 x 1 = 3 does not divide"),
        ("TRAIN_BATCH_SIZE", "2.5", "data.train_batch_size: allowed is an integer >= 1, got '2.5'"),
        (
            "TOTAL_STEPS",
            "all",
            "trainer.total_training_steps: allowed is an integer >= 1 or null, got 'all'",
        ),
        ("TEST_FREQ", "often", "trainer.test_freq: allowed is an integer >= -1, got 'often'"),
        ("SAVE_FREQ", "-7", "trainer.save_freq: allowed is an integer >= -1, got '-7'"),
        ("VAL_SAMPLES", "many", "data.val_max_samples: allowed is an integer >= -1, got 'many'"),
        ("VAL_N", "0", "val_kwargs.n: allowed is an integer >= 1, got '0'"),
        (
            "VAL_TEMPERATURE",
            "hot",
            "val_kwargs.temperature: allowed is a finite number >= 0, got 'hot'",
        ),
        ("ACTOR_LR", "1e-6x", "optim.lr: allowed is a number from 0 to 1, got '1e-6x'"),
        ("KL_LOSS_COEF", "-1", "kl_loss_coef: allowed is a finite number >= 0, got '-1'"),
        ("SEED", "one", "data.seed: allowed is an integer >= 0 or null, got 'one'"),
        ("OFFLOAD", "maybe", "param_offload: allowed is True or False, got 'maybe'"),
        (
            "ROLLOUT_GPU_MEM_UTIL",
            "1.5",
            "gpu_memory_utilization: allowed is a number from 0.01 to 1, got '1.5'",
        ),
        ("PPO_MAX_TOKEN_LEN_PER_GPU", "1000", "= 1000 is below"),
        ("FORMAT_BONUS", "much", "reward_kwargs.format_bonus is 'much'"),
        ("MODEL_PATH", "/nonexistent", "/nonexistent does not exist"),
        ("REWARD_FN", "/nonexistent.py", "/nonexistent.py does not exist"),
        ("DATA_DIR", "/nonexistent/it's", "/nonexistent/it's/train.parquet does not exist"),
        ("OUTPUT_DIR", "/etc/passwd/x", "cannot be written"),
    ],
)
def test_every_knob_is_checked(knob, bad, message, data, tmp_path):
    knobs = {"DATA_DIR": data / "logic_riddlesense", "OUTPUT_DIR": tmp_path / "out", knob: bad}
    config, problems = compose_config(overrides_of("logic_riddlesense", tmp_path, **knobs))
    if config is not None:
        problems += check_config(config).errors
    assert message in " ".join(problem.message for problem in problems)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("long", "reward_kwargs.timeout_s is 'long'"),
        ("0", "timeout_s: allowed is a finite number >= 0.1"),
    ],
)
def test_the_time_of_programs_is_checked(bad, message, data, tmp_path):
    code_tests._ALARM.forget()  # it warns once
    folders = {"DATA_DIR": data / "code_livecodebench", "OUTPUT_DIR": tmp_path / "out"}
    config = composed(overrides_of("code_livecodebench", tmp_path, TIMEOUT_S=bad, **folders))
    (problem,) = check_config(config).errors
    assert message in problem.message


@pytest.mark.parametrize(
    "function", [ROOT / "reward_fns/dispatch.py", "pkg://verl_msgrpo.rewards.dispatch"]
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_reward_for_mixed_data_gets_its_settings(recipe, function, data, server, tmp_path):
    knobs = knobs_for(recipe, PRESETS[0], data, server, tmp_path)
    overrides = overrides_of(recipe, tmp_path, REWARD_FN=function, **knobs)
    assert check_config(composed(overrides), H100).problems == []


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"BACKEND": "fsdp2"}, "BACKEND=fsdp2: megatron or fsdp"),
        ({"BACKEND": "fsdp", "ACTOR_TP": 2}, "BACKEND=fsdp has no ACTOR_TP=2"),
        ({"VERL_FILE_LOGGER_PATH": "/x/log"}, "VERL_FILE_LOGGER_PATH=/x/log: a .jsonl file"),
        ({"DRY_RUN": "true"}, "DRY_RUN=true: 0 or 1"),
        ({"MAX_RESPONSE_LENGTH": "a[$(id >&2)]"}, "is not a whole number above 0"),
    ],
)
def test_knobs_that_bash_reads(knobs, message, tmp_path):
    done = launch("medicine_medqa", path=stand_in(tmp_path), **{"DRY_RUN": 1, **knobs})
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


# --- Starting -------------------------------------------------------------------------------------


def test_starts_what_the_dry_run_shows(tmp_path):
    started, shown = (
        launch(
            "code_livecodebench",
            "a=b c",
            path=stand_in(tmp_path),
            OUTPUT_DIR=tmp_path / "out",
            **knobs,
        )
        for knobs in ({}, {"DRY_RUN": 1})
    )
    assert started.returncode == shown.returncode == 0
    assert shown.stdout.splitlines()[:3] == START
    assert started.stdout.splitlines()[1:] == shown.stdout.splitlines()[1:]
    assert started.stdout.splitlines()[-1] == "a=b c"


def test_metrics_of_a_run_that_is_resumed_are_kept(tmp_path):
    folder = tmp_path / "it's out"
    for count in (0, 1, 2):
        done = launch("math_aime24", path=stand_in(tmp_path), OUTPUT_DIR=folder)
        assert done.returncode == 0, done.stderr
        metrics = folder / "metrics.jsonl"
        assert len(list(folder.glob("metrics.*.jsonl"))) == count
        metrics.write_text(f"{count}\n")
    assert [(folder / f"metrics.{n}.jsonl").read_text() for n in (1, 2)] == ["0\n", "1\n"]
    assert metrics.read_text() == "2\n"  # until verl opens it
    config = composed(overrides_of("math_aime24", tmp_path, OUTPUT_DIR=folder))
    path = config.ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH
    assert path == str(metrics)
    assert "file" in config.trainer.logger


def test_nothing_starts_after_an_error(tmp_path):
    """The real preflight, in front of a `verl` that would say that it was started."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\n[ "$2" = verl.trainer.main_ppo ] && echo started\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    done = launch(
        "logic_riddlesense",
        path=python.parent,
        DATA_DIR="/nonexistent",
        TRAIN_BATCH_SIZE=30,
        OUTPUT_DIR=tmp_path / "out",
        GPU="h100",
    )
    assert done.returncode == 2
    assert "started" not in done.stdout
    assert "/nonexistent/train.parquet does not exist" in done.stdout
    assert "fix: actor_rollout_ref.actor.ppo_mini_batch_size=30" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(f"{Path('run_qwen2_5_7b_megatron.sh')}: not")
    assert not (tmp_path / "out").exists()
