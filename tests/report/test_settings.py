"""Settings from each place that a run may have them in, and what is broken there."""

import json
import pprint

import pytest

from verl_msgrpo.report.printed_settings import read_printed_settings
from verl_msgrpo.report.settings import read_settings
from verl_msgrpo.verl_plugin.settings_file import HIDDEN, settings_file, write_settings

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
RAY = "\x1b[36m(TaskRunnerV1 pid=77)\x1b[0m "


@pytest.fixture
def metrics(tmp_path):
    return tmp_path / "metrics.jsonl"


def log_lines(prefix=RAY):
    return ["before {'actor_rollout_ref': 1}", *(prefix + x for x in printed()), f"{prefix}after"]


def printed():
    return pprint.pformat(CONFIG).splitlines()


def write_log(metrics, lines):
    log = metrics.with_name("train.log")
    log.write_text("\n".join(lines) + "\n")
    return log


def test_our_file_goes_first(metrics):
    write_settings(metrics, CONFIG)
    write_log(metrics, ["{'actor_rollout_ref': {'n': 1}}", ""])
    found = read_settings(metrics)
    assert (found.source, found.values) == ("metrics.config.json", FLAT)


def test_hydras_file_and_what_it_leaves_unresolved(metrics):
    (metrics.parent / ".hydra").mkdir()
    text = "a: {b: 1, c: '${oc.env:HOME}'}\nd: [x, 2]\n"
    (metrics.parent / ".hydra" / "config.yaml").write_text(text)
    found = read_settings(metrics)
    assert (found.source, found.values) == ("config.yaml", {"a.b": "1", "d": '["x", 2]'})


@pytest.mark.parametrize("prefix", ["", RAY])
def test_what_verl_prints(metrics, prefix):
    write_log(metrics, log_lines(prefix))
    found = read_settings(metrics)
    assert (found.source, found.values) == ("train.log", FLAT)


def test_lines_that_ray_cut_and_other_output_between(metrics):
    lines = log_lines()
    (at,) = (i for i, line in enumerate(lines) if "'fsdp2'" in line)
    key, value = lines[at].split("'fsdp2'")
    (number,) = (i for i, line in enumerate(lines) if "'top_k': -1" in line)
    before, after = lines[number].split("'top_k': -1")
    lines[number : number + 1] = [f"{before}'top_k'", f"{RAY}: -1{after}"]
    lines[at : at + 1] = [
        *(f"{RAY}INFO: something else", "(Other pid=78)  'x': 1,", f"{RAY}/a/b.py:3: UserWarning"),
        *(key, f"{RAY}'fsdp2'{value}"),
    ]
    write_log(metrics, lines)
    assert read_settings(metrics).values == FLAT


def test_a_log_that_ends_early_or_holds_no_literal_has_no_settings(metrics):
    log = write_log(metrics, log_lines()[:-3])
    assert read_printed_settings(log) is None
    log = write_log(metrics, ["{'actor_rollout_ref': __import__('os').abort()}", ""])
    assert read_printed_settings(log) is None
    log = write_log(metrics, ["{'actor_rollout_ref': " + "[" * 5000, " }"])
    assert read_printed_settings(log) is None
    assert read_settings(metrics) is None


@pytest.mark.parametrize("content", ["{", "[1]", "[" * 100_000, '"x"', "\x00", "{}"])
def test_a_broken_file_counts_as_none(metrics, content):
    settings_file(metrics).write_text(content)
    assert read_settings(metrics) is None


def test_a_yaml_file_that_grows_without_end_counts_as_none(metrics):
    (metrics.parent / ".hydra").mkdir()
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    text = "\n".join(["a0: &a0 [x]", *levels])
    (metrics.parent / ".hydra" / "config.yaml").write_text(text)
    assert read_settings(metrics) is None


def test_a_shared_folders_log_is_not_the_settings_of_one_run(metrics):
    write_log(metrics, log_lines())
    assert read_settings(metrics.with_name("experiment.jsonl")) is None


SECRETS = {
    "env": {"HF_TOKEN": "s3", "x_api_key": "s3", "x-access-key": 53, "token": "s3"},
    "tools": [{"headers": {"Authorization": "Bearer s3"}}, {"Passwords": ["s3", {"of": "s3"}]}],
    "proxy": "http://me:s3@host:80/s4@5",
    "max_tokens": 5,
    "dp_token": True,
    "hf_token": None,
    "loss_agg_mode": "token-mean",
}
WITHOUT_SECRETS = {
    **dict.fromkeys(
        ["env.HF_TOKEN", "env.x_api_key", "env.x-access-key", "env.token"], f'"{HIDDEN}"'
    ),
    "tools": f'[{{"headers": {{"Authorization": "{HIDDEN}"}}}}, '
    f'{{"Passwords": ["{HIDDEN}", {{"of": "{HIDDEN}"}}]}}]',
    "proxy": f'"http://{HIDDEN}@host:80/s4@5"',
    "max_tokens": "5",
    "dp_token": "true",
    "hf_token": "null",
    "loss_agg_mode": '"token-mean"',
}


def test_secrets_are_not_written(metrics):
    write_settings(metrics, SECRETS)
    written = settings_file(metrics).read_text()
    assert "s3" not in written
    assert "53" not in written
    assert read_settings(metrics).values == WITHOUT_SECRETS


def test_secrets_of_others_are_not_read(metrics):
    settings_file(metrics).write_text(json.dumps(SECRETS))
    assert read_settings(metrics).values == WITHOUT_SECRETS
