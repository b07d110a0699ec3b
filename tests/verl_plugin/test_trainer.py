"""What the registered trainers check, with verl's own trainer classes and configuration."""

import logging
import re

import pytest

pytest.importorskip("verl")
import torch
import verl  # noqa: F401  loads the plugin
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.v1 import PPOTrainer, get_trainer_cls, trainer_base
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

from verl_msgrpo.errors import UserError
from verl_msgrpo.report.runs import read_settings
from verl_msgrpo.verl_plugin import estimator
from verl_msgrpo.verl_plugin.trainer import (
    MSGRPOTrainerMixin,
    check_search_tools,
    register_trainers,
)

MODES = ["sync", "colocate_async", "separate_async"]


def algorithm_config(estimator="ms_grpo", **settings):
    return OmegaConf.create(
        {
            "algorithm": {"adv_estimator": estimator, **settings},
            "data": {"train_batch_size": 4},
        }
    )


@pytest.mark.parametrize("mode", MODES)
def test_every_trainer_keeps_its_name(mode):
    trainer = get_trainer_cls(mode)
    assert issubclass(trainer, MSGRPOTrainerMixin)
    verl_trainer = trainer.__mro__[2]
    assert verl_trainer.__name__ == trainer.__name__
    assert verl_trainer.__module__.startswith("verl.trainer.ppo.v1")


def test_registering_again_changes_nothing():
    before = dict(TRAINER_REGISTRY)
    register_trainers()
    assert before == TRAINER_REGISTRY


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_scales": 0}, "num_scales"),
        ({"scales": [1, 4]}, "scales"),
        ({"nmu_scales": 4}, "nmu_scales"),
        ({"subgroups": "some"}, "subgroups"),
    ],
)
def test_a_bad_setting_fails_before_anything_is_built(mode, settings, named, monkeypatch):
    monkeypatch.setattr(PPOTrainer, "__init__", lambda self, config: pytest.fail("was built"))
    with pytest.raises(ValueError, match=named) as error:
        get_trainer_cls(mode)(algorithm_config(ms_grpo=settings))
    assert "\n" not in str(error.value)


def test_other_estimators_are_left_alone(monkeypatch):
    built = []
    monkeypatch.setattr(PPOTrainer, "__init__", lambda self, config: built.append(config))
    get_trainer_cls("sync")(algorithm_config("grpo", ms_grpo={"num_scales": 0}))
    assert len(built) == 1


RUN = """
algorithm: {adv_estimator: grpo}
data: {seed: 3, rows: "${.seed}"}
actor_rollout_ref: {rollout: {n: "???", env: {WANDB_API_KEY: s3, HF_TOKEN: s3}}}
trainer: {logger: [console, file], project_name: countries, experiment_name: grpo.lr1}
"""


def fitted(monkeypatch, folder, mode="sync", **changed):
    """What verl's own `fit` is called with after ours, with the real resolved configuration."""
    calls = []
    monkeypatch.setattr(PPOTrainer, "fit", lambda self, manager: calls.append(manager))
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(folder))
    monkeypatch.delenv("VERL_FILE_LOGGER_PATH", raising=False)
    trainer = object.__new__(get_trainer_cls(mode))  # without its workers
    trainer.config = OmegaConf.create(RUN)
    for name, value in changed.items():
        OmegaConf.update(trainer.config, name.replace("__", "."), value, force_add=True)
    trainer.fit("manager")
    return calls


@pytest.mark.parametrize("mode", MODES)
def test_the_report_finds_the_settings_of_a_run(mode, monkeypatch, tmp_path):
    assert fitted(monkeypatch, tmp_path, mode) == ["manager"]
    found = read_settings(tmp_path / "countries" / "grpo.lr1.jsonl")
    assert found["data.rows"] == "3"
    assert found["actor_rollout_ref.rollout.n"] == '"???"'
    assert found["trainer.logger"] == '["console", "file"]'
    assert "s3" not in (tmp_path / "countries" / "grpo.lr1.config.json").read_text()


@pytest.mark.parametrize("logger", ["console", ["console", "tensorboard"], None, []])
def test_settings_are_kept_beside_a_file_of_metrics_only(logger, monkeypatch, tmp_path):
    assert fitted(monkeypatch, tmp_path, trainer__logger=logger) == ["manager"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "NotADirectoryError"),
        ({"data__rows": "${nowhere}"}, "InterpolationKeyError"),
        ({"data__rows": {b"x": 1}}, "TypeError"),
        ({"trainer__experiment_name": "x" * 300}, "OSError"),
    ],
)
def test_settings_that_cannot_be_kept_end_no_training(changed, said, monkeypatch, tmp_path, caplog):
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    folder = tmp_path if changed else not_a_folder
    with caplog.at_level(logging.WARNING, "verl_msgrpo.verl_plugin.trainer"):
        assert fitted(monkeypatch, folder, **changed) == ["manager"]
    (record,) = caplog.records
    assert re.search(rf"not kept for verl-msgrpo report \(({said}): [^\n]+\)$", record.message)


@pytest.fixture
def filtering_trainer(monkeypatch):
    """A real trainer object without its workers; the replay buffer finds no group worth keeping."""

    def build(limit: int, estimator: str = "ms_grpo"):
        monkeypatch.setattr(PPOTrainer, "__init__", lambda self, config: None)
        monkeypatch.setattr(PPOTrainer, "_add_batch_to_generate", lambda self: None)
        monkeypatch.setattr(PPOTrainer, "_add_prompts_to_generate", lambda self, n: n)
        filter_groups = {"enable": True, "metric": "acc", "max_num_gen_batches": limit}
        config = algorithm_config(estimator, filter_groups=filter_groups)
        trainer = get_trainer_cls("sync")(config)
        trainer.config = config
        trainer.replay_buffer = type("Buffer", (), {"finished_keys": {"train": {"a"}}})()
        trainer.prepare_step()
        return trainer

    return build


def test_filtering_stops_with_kept_and_needed_numbers(filtering_trainer):
    trainer = filtering_trainer(limit=3)
    assert trainer._add_prompts_to_generate(4) == 4
    assert trainer._add_prompts_to_generate(4) == 4
    with pytest.raises(RuntimeError, match=r"keeps 1 of 12 generated groups, 4 are needed"):
        trainer._add_prompts_to_generate(4)


def test_the_count_starts_anew_with_each_step(filtering_trainer):
    trainer = filtering_trainer(limit=2)
    for _ in range(3):
        trainer.prepare_step()
        trainer._add_prompts_to_generate(4)


def test_without_a_limit_it_warns(filtering_trainer, caplog):
    trainer = filtering_trainer(limit=0)
    with caplog.at_level(logging.WARNING, "verl_msgrpo.verl_plugin.trainer"):
        for _ in range(19):
            trainer._add_prompts_to_generate(4)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "algorithm.filter_groups keeps 1 of 36 generated groups, 4 are needed",
        "algorithm.filter_groups keeps 1 of 76 generated groups, 4 are needed",
    ]


def test_filtering_of_other_estimators_is_left_to_verl(filtering_trainer):
    trainer = filtering_trainer(limit=1, estimator="grpo")
    for _ in range(5):
        trainer._add_prompts_to_generate(4)


def tool_file_config(path):
    config = algorithm_config("grpo")
    config.actor_rollout_ref = {"rollout": {"multi_turn": {"tool_config_path": str(path)}}}
    return config


def in_verls_own_step(monkeypatch, mode, name, scores, padding=(), **ms_grpo):
    """Advantages and metrics of rows of two tokens, by verl's own `_compute_advantage`.

    scores: key of a row -> its score.
    """
    keys, rows = list(scores), len(scores)
    rm_scores = [torch.tensor([0.0, score]) for score in scores.values()]
    data = TensorDict(
        {
            "uid": NonTensorStack(*(key.rsplit("_", 2)[0] for key in keys)),
            "response_mask": torch.nested.as_nested_tensor(
                [torch.ones(2)] * rows, layout=torch.jagged
            ),
            "rm_scores": torch.nested.as_nested_tensor(rm_scores, layout=torch.jagged),
        },
        batch_size=rows,
    )
    written = {}
    monkeypatch.setattr(trainer_base.tq, "kv_batch_get", lambda **_: data)
    monkeypatch.setattr(
        trainer_base.tq, "kv_batch_put", lambda fields, **_: written.update(fields.items())
    )
    config = algorithm_config(name, ms_grpo=ms_grpo, use_kl_in_reward=False, gamma=1.0, lam=1.0)
    config.actor_rollout_ref = {"rollout": {"n": 2}}
    trainer = object.__new__(get_trainer_cls(mode))  # without its workers
    trainer.config = config
    tags = [{"is_padding": key in padding} for key in keys]
    batch = trainer_base.KVBatchMeta(keys=keys, tags=tags, partition_id="train")
    metrics = {"actor/lr": 1.0}
    trainer._compute_advantage(batch, metrics=metrics)
    return torch.stack(list(written["advantages"].unbind())), metrics


@pytest.mark.parametrize("name", ["ms_grpo", "grpo"])
@pytest.mark.parametrize("mode", MODES)
def test_a_session_cut_into_rows_counts_once_in_verls_own_step(mode, name, monkeypatch):
    scores = {"u_0_0": 1.0, "u_1_0": 0.0, "u_1_1": 0.0, "u_1_2": 0.0}
    advantages, _ = in_verls_own_step(monkeypatch, mode, name, scores, num_scales=1)
    expected = torch.tensor([0.7071, -0.7071, -0.7071, -0.7071])[:, None].expand(4, 2)
    assert torch.allclose(advantages, expected, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_the_metrics_of_a_step_are_those_of_its_real_groups(mode, monkeypatch):
    scores = {
        "u_0_0": 1.0,
        "u_1_0": 0.0,
        "v_0_0": 0.5,
        "v_1_0": 0.5,
        "pad_0_0": 7.0,
        "pad_1_0": 0.0,
    }
    advantages, metrics = in_verls_own_step(
        monkeypatch, mode, "ms_grpo", scores, padding=("pad_0_0", "pad_1_0")
    )
    assert not advantages[2:].any()
    ours = {name: value for name, value in metrics.items() if name.startswith("ms_grpo/")}
    assert set(metrics) - set(ours) == {"actor/lr"}
    # Of two responses the only subgroup is the pair: GRPO.
    assert ours == pytest.approx(
        {
            "ms_grpo/groups": 2,
            "ms_grpo/homogeneous_share": 0.5,
            "ms_grpo/nonfinite_share": 0,
            "ms_grpo/scale": 1,
            "ms_grpo/correction": 0,
            "ms_grpo/sign_flips": 0,
            "ms_grpo/distinct_rewards": 2,
            "ms_grpo/subgroups": 1,
            "ms_grpo/exact_share": 1,
            "ms_grpo/design_noise": 0,
            "ms_grpo/adv_abs_mean": 0.5**0.5,
            "ms_grpo/grpo_adv_abs_mean": 0.5**0.5,
        },
        abs=1e-5,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ms_grpo", estimator.TrainerBatch(["u_0_0", "pad_0_0"], [False, True])), ("grpo", None)],
)
def test_the_batch_is_published_for_our_estimator_and_this_call_only(name, expected, monkeypatch):
    seen = []
    monkeypatch.setattr(
        PPOTrainer,
        "_compute_advantage",
        lambda self, batch, metrics: seen.append(estimator._batch.get()),
    )
    trainer = object.__new__(get_trainer_cls("sync"))
    trainer.config = algorithm_config(name)
    batch = trainer_base.KVBatchMeta(
        keys=["u_0_0", "pad_0_0"], tags=[{}, {"is_padding": True}], partition_id="train"
    )
    trainer._compute_advantage(batch, metrics={})
    assert seen == [expected]
    assert estimator._batch.get() is None


def search_config(tmp_path, url):
    tools = tmp_path / "tools.yaml"
    tools.write_text(
        "tools:\n"
        "  - class_name: verl_msgrpo.search.SearchTool\n"
        f"    config: {{retrieval_service_url: {url}, timeout: 1}}\n"
    )
    return tool_file_config(tools)


@pytest.mark.parametrize(
    ("url", "named"),
    [("http://127.0.0.1:9/retrieve", "retrieval server"), ("not-a-url", "retrieval_service_url")],
)
def test_no_training_without_a_retrieval_server(tmp_path, monkeypatch, url, named):
    monkeypatch.setattr(PPOTrainer, "__init__", lambda self, config: pytest.fail("was built"))
    monkeypatch.setattr("verl_msgrpo.search.client._PROBE_PAUSE_S", 0.0)
    with pytest.raises(UserError, match=named) as error:
        get_trainer_cls("sync")(search_config(tmp_path, url))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("- class_name: verl_msgrpo.search.SearchTool\n", "it needs a list under `tools:`"),
        ("", "it needs a list under `tools:`"),
        ("tools: {a: b}\n", "it needs a list under `tools:`"),
        ("3\n", "Invalid loaded object type"),
        ("tools: [search]\n", "tool 1 needs `class_name:` and `config:`"),
        ("tools: [{class_name: verl_msgrpo.search.SearchTool}]\n", "tool 1 needs .* `config:`"),
        ("tools: [{class_name: a\n", "while parsing a flow mapping"),
        ("tools: \x00", "special characters are not allowed"),
        ("tools: [{class_name: verl_msgrpo.search.SearchTool, config: {a: '${b}'}}]\n", "'b'"),
    ],
)
def test_a_tool_file_that_cannot_be_used_is_named(tmp_path, content, said):
    path = tmp_path / "tools.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=f"tool_config_path {path}: .*{said}") as error:
        check_search_tools(tool_file_config(path))
    assert "\n" not in str(error.value)


def test_other_tools_are_left_to_verl(tmp_path):
    path = tmp_path / "tools.yaml"
    path.write_text(
        "tools: [{class_name: nowhere.Tool, config: {url: '${oc.env:NOT_SET_HERE}'}}]\n"
    )
    check_search_tools(tool_file_config(path))
