"""A run's metrics and settings, from whole files and from broken ones."""

import json

import pytest

from tests.report.files import write_run
from verl_msgrpo.errors import UserError
from verl_msgrpo.report import runs
from verl_msgrpo.report.runs import read_run, read_settings
from verl_msgrpo.verl_plugin.settings_file import HIDDEN, settings_file, write_settings


def read(path):
    return read_run(path, lambda name: name != "unwanted")


def test_series_by_name_in_order_of_steps(tmp_path):
    folder = write_run(tmp_path / "a", {2: {"x": 2, "unwanted": 1}, 1: {"x": 1.5, "y": True}})
    run = read(folder)
    assert run.metrics == {"x": {1: 1.5, 2: 2.0}, "y": {1: 1.0}}
    assert list(run.metrics["x"]) == [1, 2]
    assert (run.last_step, run.unread, run.name) == (2, 0, "a")
    assert read(folder / "metrics.jsonl").metrics == run.metrics


def test_a_resumed_run_is_one(tmp_path):
    """Steps that were done again after the checkpoint are those of the later part."""
    folder = write_run(tmp_path / "a", {5: {"x": 50}, 6: {"x": 60}})
    for number, steps in ((2, {3: 3, 4: 4, 5: 5}), (10, {4: 40}), (1, {1: 1, 2: 2, 3: 0})):
        part = write_run(tmp_path / str(number), {step: {"x": x} for step, x in steps.items()})
        (part / "metrics.jsonl").rename(folder / f"metrics.{number}.jsonl")
    (folder / "metrics.old.jsonl").write_text('{"step": 9, "data": {"x": 9}}\n')
    assert read(folder).metrics == {"x": {1: 1, 2: 2, 3: 3, 4: 40, 5: 50, 6: 60}}


def test_of_a_run_that_was_started_anew_only_the_last_attempt_counts(tmp_path):
    folder = write_run(tmp_path / "a", {0: {"x": 0}, 1: {"x": 1}})
    part = write_run(tmp_path / "1", {0: {"y": 5}, 1: {"x": 5}, 30: {"x": 5}})
    (part / "metrics.jsonl").rename(folder / "metrics.1.jsonl")
    run = read(folder)
    assert run.metrics == {"x": {0: 0, 1: 1}}
    assert run.last_step == 1


def test_a_file_with_a_number_in_its_name_is_another_run(tmp_path):
    for name, steps in (("qwen2", {1: {"x": 1}}), ("qwen2.5", {2: {"x": 2}})):
        folder = write_run(tmp_path / name, steps)
        (folder / "metrics.jsonl").rename(tmp_path / f"{name}.jsonl")
    assert read(tmp_path / "qwen2.jsonl").metrics == {"x": {1: 1}}


def test_lines_that_are_cut_or_foreign_are_counted(tmp_path):
    folder = write_run(tmp_path / "a", {1: {"x": 1.0}})
    bad = [
        *(b"[1]", b'"x"', b'{"step": true, "data": {}}', b'{"step": -1, "data": {}}'),
        *(b'{"step": 2}', b"\xff\xfe", b"[" * 100_000, b'{"step": 3, "data": {"x": 1'),
    ]
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b"\n\n" + b"\n".join(bad))
    run = read(folder)
    assert run.metrics == {"x": {1: 1.0}}
    assert run.unread == len(bad)


def test_values_that_are_no_finite_numbers_are_missing(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    data = f'{{"a": NaN, "b": Infinity, "c": "1", "d": null, "e": {10**400}, "f": 1e400, "g": 2}}'
    (folder / "metrics.jsonl").write_text(f'{{"step": 1, "data": {data}}}\n')
    assert read(folder).metrics == {"g": {1: 2.0}}


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("grpo-seed1", "metrics.jsonl"), "grpo-seed1"),
        (("grpo", "seed_1", "metrics.jsonl"), "grpo/seed_1"),
        (("grpo", "17", "metrics.jsonl"), "grpo/17"),
        (("project", "experiment.jsonl"), "experiment"),
    ],
)
def test_name(tmp_path, parts, name):
    path = tmp_path.joinpath(*parts)
    path.parent.mkdir(parents=True)
    path.write_text('{"step": 1, "data": {}}\n')
    assert read(path).name == name


def test_errors_name_the_path_and_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such run"):
        read(tmp_path / "nowhere")
    (tmp_path / "other.jsonl").write_text("")
    with pytest.raises(UserError, match=r"no metrics.jsonl in it .*is it .*other.jsonl\?"):
        read(tmp_path)
    with pytest.raises(UserError, match="no line of verl's file logger"):
        read(tmp_path / "other.jsonl")


# --- Settings -------------------------------------------------------------------------------------

CONFIG = {
    "actor_rollout_ref": {
        "actor": {"optim": {"lr": 1e-4, "betas": [0.9, 0.999]}, "strategy": "fsdp2"},
        "rollout": {"n": 8, "top_k": -1, "note": "it's {odd}: " + "many words " * 20},
    },
    "algorithm": {"adv_estimator": "ms_grpo", "ms_grpo": {"scales": None}},
    "data": {"seed": 1, "shuffle": True},
}
FLAT = {
    "actor_rollout_ref.actor.optim.lr": "0.0001",
    "actor_rollout_ref.actor.optim.betas": "[0.9, 0.999]",
    "actor_rollout_ref.actor.strategy": '"fsdp2"',
    "actor_rollout_ref.rollout.n": "8",
    "actor_rollout_ref.rollout.top_k": "-1",
    "actor_rollout_ref.rollout.note": json.dumps(CONFIG["actor_rollout_ref"]["rollout"]["note"]),
    "algorithm.adv_estimator": '"ms_grpo"',
    "algorithm.ms_grpo.scales": "null",
    "data.seed": "1",
    "data.shuffle": "true",
}


@pytest.fixture
def metrics(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_settings_are_flat_json(metrics):
    write_settings(metrics, CONFIG)
    assert read_settings(metrics) == FLAT


def test_settings_of_other_programs_are_unknown(tmp_path):
    """What verl prints, and Hydra's own file, name no run."""
    folder = write_run(tmp_path / "a", {1: {"x": 1}})
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "config.yaml").write_text("algorithm: {adv_estimator: grpo}\n")
    (folder / "train.log").write_text("{'actor_rollout_ref': {'n': 1}}\n")
    assert read(folder).settings is None


@pytest.mark.parametrize("content", ["{", "[1]", "[" * 100_000, '"x"', "\x00", "{}", '{"a": {}}'])
def test_settings_that_cannot_be_read_are_unknown(metrics, content):
    settings_file(metrics).write_text(content)
    assert read_settings(metrics) is None


def test_settings_have_a_bound(metrics, monkeypatch):
    settings_file(metrics).write_text(json.dumps({"a": {f"k{n}": n for n in range(9)}}))
    assert len(read_settings(metrics)) == 9
    monkeypatch.setattr(runs, "MAX_SETTINGS", 9)  # the section counts too
    assert read_settings(metrics) is None
    monkeypatch.undo()
    monkeypatch.setattr(runs, "MAX_SETTINGS_BYTES", 20)
    assert read_settings(metrics) is None


def test_secrets_of_others_are_not_read(metrics):
    settings_file(metrics).write_text(json.dumps({"api_key": "s3", "rows": 3}))
    assert read_settings(metrics) == {"api_key": f'"{HIDDEN}"', "rows": "3"}
