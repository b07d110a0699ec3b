"""Sizes of models, GPUs and checkpoints, against published numbers and arithmetic by hand."""

import pytest

from verl_msgrpo.preflight.launch import KNOWN, from_config, model_facts
from verl_msgrpo.preflight.layout import largest_divisor
from verl_msgrpo.preflight.memory import GIB, checkpoint_bytes, estimate, kv_bytes_per_token

pytest.importorskip("verl")

from tests.preflight.recipes import PRESETS

A = "actor_rollout_ref"
# Parameters as the models' safetensors files on the hub state them.
PUBLISHED = dict(zip(PRESETS, (7_615_616_512, 3_212_749_824, 1_777_088_000, 7_615_616_512)))  # noqa: B905


@pytest.mark.parametrize("name", PRESETS)
def test_parameters(name):
    assert KNOWN[name].parameters == PUBLISHED[name]
    assert model_facts(name) == KNOWN[name]


def test_cache_of_a_token():
    """28 layers x (key + value) x 4 heads x 128 numbers x 2 bytes; a quarter on four GPUs."""
    qwen = KNOWN[PRESETS[0]]
    assert kv_bytes_per_token(qwen, 1) == 28 * 2 * 4 * 128 * 2
    assert kv_bytes_per_token(qwen, 4) == 28 * 2 * 1 * 128 * 2
    assert kv_bytes_per_token(KNOWN[PRESETS[2]], 4) == 28 * 2 * 1 * 128 * 2  # copies of two heads


def test_megatron(launches):
    """TP 4 on eight GPUs: a quarter of the weights, their gradients, an eighth of the optimizer."""
    launch = launches["megatron"].check().launch
    memory = estimate(launch)
    parameters = PUBLISHED[PRESETS[0]]
    assert memory.weights * GIB == pytest.approx(2 * parameters / 4)
    assert memory.gradients * GIB == pytest.approx(4 * parameters / 4)
    assert memory.optimizer * GIB == pytest.approx(12 * parameters / 8)
    assert memory.reference == memory.weights
    assert memory.resident == 0
    assert memory.rollout_weights * GIB == pytest.approx(2 * parameters)
    assert memory.host * GIB == pytest.approx(8 * (2 * 2 * parameters / 4 + 12 * parameters / 8))
    assert checkpoint_bytes(launch) == 14 * parameters


def test_pipeline_stages_hold_one_end_each(launches):
    keys = [
        f"{A}.{role}.megatron.{name}_model_parallel_size={size}"
        for role in ("actor", "ref")
        for name, size in (("tensor", 1), ("pipeline", 4))
    ]
    report = launches["megatron"].check(*keys)
    model = KNOWN[PRESETS[0]]
    stage = 7 * model.layer_parameters + model.embedding_parameters + model.hidden
    assert report.memory.weights * GIB == pytest.approx(2 * stage)


def test_fsdp(launches):
    """fp32 weights, gradients and two moments, each an eighth."""
    off = [f"{A}.actor.fsdp_config.{name}_offload=False" for name in ("param", "optimizer")]
    report = launches["fsdp"].check(*off)
    eighth = PUBLISHED[PRESETS[0]] / 8
    assert report.memory.weights * GIB == pytest.approx(4 * eighth)
    assert report.memory.states * GIB == pytest.approx(16 * eighth)
    assert report.memory.resident == pytest.approx(report.memory.states)
    assert checkpoint_bytes(report.launch) == pytest.approx(12 * 8 * eighth)


def test_experts_are_not_counted():
    shape = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_experts": 8,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
    }
    assert from_config(shape, "here").experts
    assert from_config({**shape, "hidden_size": "wide"}, "here") is None
    assert from_config({**shape, "hidden_size": -1}, "here") is None


@pytest.mark.parametrize(
    ("number", "limit", "of", "expected"),
    [(8, 3, 0, 2), (8, 16, 0, 8), (28, 8, 8, 4), (1, 4, 0, 1), (6, 4, 9, 3)],
)
def test_largest_divisor(number, limit, of, expected):
    assert largest_divisor(number, limit, of) == expected
