import dataclasses
import logging
import math

import numpy as np
import pytest
import torch

from verl_msgrpo import MSGRPOConfig
from verl_msgrpo.verl_plugin import estimator
from verl_msgrpo.verl_plugin.estimator import compute_ms_grpo_advantage, ms_grpo_config

core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
omegaconf = pytest.importorskip("omegaconf")

PLAIN = {"ms_grpo": {"num_scales": 1}}  # the scale G alone: GRPO


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch):
    monkeypatch.setattr(estimator, "_reported", set())


def batch(rewards, length=3):
    """Outcome rewards on the last token, everything counts."""
    token_level_rewards = torch.zeros(len(rewards), length)
    token_level_rewards[:, -1] = torch.tensor(rewards)
    return token_level_rewards, torch.ones(len(rewards), length)


def adv(rewards, uid, config=PLAIN, **kwargs):
    token_level_rewards, mask = batch(rewards)
    advantages, returns = compute_ms_grpo_advantage(
        token_level_rewards=token_level_rewards,
        response_mask=mask,
        config=config,
        index=np.array(list(uid), dtype=object),
        **kwargs,
    )
    assert torch.equal(advantages, returns)
    assert torch.equal(advantages, advantages[:, :1].expand_as(mask))
    return advantages[:, 0].tolist()


def close(value):
    return pytest.approx(value, abs=1e-4)


# --- cases that users of advantage estimators reported


def test_a03_the_four_arguments_are_enough_and_others_are_ignored():
    assert adv([1.0, 0.0], "aa") == adv([1.0, 0.0], "aa", foo=1, reward_baselines=None)


def test_a03_without_index():
    rewards, mask = batch([1.0, 0.0])
    with pytest.raises(ValueError, match="uid"):
        compute_ms_grpo_advantage(token_level_rewards=rewards, response_mask=mask, config=None)
    with pytest.raises(ValueError, match=r"3 uids .* 2 responses"):
        compute_ms_grpo_advantage(rewards, mask, None, ["a", "b", "c"])


@dataclasses.dataclass
class Algorithm:
    norm_adv_by_std_in_grpo: bool = True
    ms_grpo: object = None


@pytest.mark.parametrize("make", [dict, omegaconf.OmegaConf.create, lambda d: Algorithm(**d)])
@pytest.mark.parametrize(
    ("by_std", "expected"), [(False, [0.75, -0.25, -0.25, -0.25]), (True, [1.5, -0.5, -0.5, -0.5])]
)
def test_a04_std_flag_of_the_config(make, by_std, expected):
    config = make({"norm_adv_by_std_in_grpo": by_std, "ms_grpo": {"num_scales": 1}})
    assert adv([1.0, 0, 0, 0], "aaaa", config) == close(expected)


def test_a04_struct_config_of_the_trainer():
    config = omegaconf.OmegaConf.create({"norm_adv_by_std_in_grpo": False, "gamma": 1.0})
    omegaconf.OmegaConf.set_struct(config, True)
    assert ms_grpo_config(config) == MSGRPOConfig(normalize_by_std=False)


def test_a04_algo_config_of_verl():
    from verl.trainer.config import AlgoConfig

    assert ms_grpo_config(AlgoConfig(norm_adv_by_std_in_grpo=False)).normalize_by_std is False
    assert ms_grpo_config(AlgoConfig()).normalize_by_std is True


def test_a05_uid_per_prompt_or_per_rollout(caplog):
    assert adv([1.0, 0, 1, 0], "aaaa") == close([0.866, -0.866, 0.866, -0.866])
    assert not caplog.records
    for _ in range(2):
        assert adv([1.0, 0, 1, 0], "abcd") == [0.0] * 4
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "rollout.n" in record.getMessage()
    assert "uid" in record.getMessage()


def test_a06_interleaved_unequal_groups():
    expected = [1.1547, -0.7071, -0.5774, 0.7071, -0.5774]
    assert adv([1.0, 0, 0, 1, 0], "ababa") == close(expected)


def test_a07_group_of_one():
    assert adv([0.7], "a") == [0.0]
    assert adv([0.7, 1.0, 0.0], "abb")[0] == 0.0


@pytest.mark.parametrize(("reward", "size"), [(0.9, 10), (0.3, 7)])
@pytest.mark.parametrize("config", [PLAIN, None, {"ms_grpo": {"preset": "paper"}}])
def test_a08_no_variance(reward, size, config):
    assert adv([reward] * size, "a" * size, config) == [0.0] * size


def test_a08_equal_after_summing_the_tokens():
    rewards = torch.zeros(4, 20)
    rewards[0, 0] = 0.9
    rewards[1, :9] = rewards[2, 4:13] = 0.1
    rewards[3, ::2] = 0.09
    assert rewards.sum(dim=1).unique().numel() > 1
    advantages, _ = compute_ms_grpo_advantage(rewards, torch.ones(4, 20), None, ["a"] * 4)
    assert not advantages.any()


def test_a09_nan_reward():
    advantage = adv([1.0, math.nan, 0, 0, 1, 0], "aaaabb")
    assert advantage == close([1.1547, 0, -0.5774, -0.5774, 0.7071, -0.7071])
    assert advantage[1] == 0.0


def test_a10_padding_rows():
    rewards = torch.rand(24, generator=torch.manual_seed(0)).tolist()
    uid = list("abc" * 8)
    for config in (None, {"ms_grpo": {"preset": "paper"}}, {"ms_grpo": {"max_terms": 300}}):
        padded = adv([*rewards, *[0.0] * 40], [*uid, *["pad0"] * 40], config)
        assert padded[:24] == adv(rewards, uid, config)
        assert not any(padded[24:])


def test_a10_one_token_of_padding():
    token_level_rewards, mask = batch([1.0, 0.5, 0.0, 0.0])
    mask[3] = torch.tensor([1, 0, 0])
    padded, _ = compute_ms_grpo_advantage(token_level_rewards, mask, None, ["a", "a", "a", "p"])
    alone, _ = compute_ms_grpo_advantage(token_level_rewards[:3], mask[:3], None, ["a"] * 3)
    assert torch.equal(padded[:3], alone)
    assert not padded[3].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_a13_tool_tokens(dtype):
    rewards, _ = batch([1.0, 0.0], length=5)
    mask = torch.tensor([[1, 1, 0, 0, 1], [1, 0, 0, 0, 0]]).to(dtype)
    advantages, _ = compute_ms_grpo_advantage(rewards, mask, PLAIN, ["a", "a"])
    assert advantages.dtype == torch.float32
    assert advantages[0].tolist() == close([0.7071, 0.7071, 0, 0, 0.7071])
    assert not advantages[mask == 0].any()


# --- equality with verl


@pytest.mark.parametrize("by_std", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_scale_g_alone_equals_verls_grpo_on_ragged_batches(seed, by_std):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 12, 20)
    uid = rng.permutation(np.repeat([f"uid-{i}" for i in range(20)], sizes)).astype(object)
    rewards = torch.from_numpy(rng.normal(size=(len(uid), 6))).float()
    mask = torch.from_numpy(rng.integers(0, 2, (len(uid), 6)))
    before = rewards.clone(), mask.clone(), uid.copy()
    config = {"norm_adv_by_std_in_grpo": by_std, "ms_grpo": {"scales": [10**6]}}
    ours, _ = compute_ms_grpo_advantage(rewards, mask, config, uid)
    theirs, _ = core_algos.compute_grpo_outcome_advantage(
        rewards, mask, uid, norm_adv_by_std_in_grpo=by_std
    )
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert ours.dtype == theirs.dtype
    assert torch.equal(rewards, before[0])
    assert torch.equal(mask, before[1])
    assert (uid == before[2]).all()


def test_kinds_of_index():
    expected = adv([1.0, 0, 0, 1, 0], "ababa")
    rewards, mask = batch([1.0, 0, 0, 1, 0])
    for index in (np.array([3, 7, 3, 7, 3]), torch.tensor([3, 7, 3, 7, 3]), list("ababa")):
        advantages, _ = compute_ms_grpo_advantage(rewards, mask, PLAIN, index)
        assert advantages[:, 0].tolist() == expected


# --- settings


def test_normalize_by_std_wins_over_the_flag_of_verl():
    config = {"norm_adv_by_std_in_grpo": True, "ms_grpo": {"normalize_by_std": False}}
    assert ms_grpo_config(config).normalize_by_std is False


@pytest.mark.parametrize(
    "section",
    [
        {"num_scales": 4, "seed": 1},
        {"num_scales": "4", "seed": "1"},
        MSGRPOConfig(num_scales=4, seed=1),
        omegaconf.OmegaConf.create({"num_scales": "${oc.decode:'4'}", "seed": 1}),
    ],
)
def test_forms_of_the_section(section):
    expected = MSGRPOConfig(num_scales=4, seed=1, normalize_by_std=True)
    assert ms_grpo_config({"ms_grpo": section}) == expected
    assert ms_grpo_config(Algorithm(ms_grpo=section)) == expected


def test_no_config():
    assert ms_grpo_config(None) == MSGRPOConfig(normalize_by_std=True)
    assert adv([1.0, 0.0], "aa", None) == close([0.7071, -0.7071])


def test_bad_settings():
    config = omegaconf.OmegaConf.create({"ms_grpo": {"scales": [2, 1]}})
    with pytest.raises(ValueError, match=r"ms_grpo\.scales"):
        ms_grpo_config(config)
    with pytest.raises(ValueError, match=r"ms_grpo\.scale:"):
        adv([1.0, 0.0], "aa", {"ms_grpo": {"scale": 2}})
    with pytest.raises(ValueError, match="mapping"):
        ms_grpo_config({"ms_grpo": 4})


# --- warnings


def test_first_batch_without_variance_warns_once(caplog):
    adv([1.0, 1, 0, 0], "aabb")
    adv([1.0, 1, 0, 0], "aabb")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "first batch" in record.getMessage()


def test_later_batches_without_variance_are_silent(caplog):
    adv([1.0, 0, 0, 0], "aabb")
    adv([1.0, 1, 0, 0], "aabb")
    assert not caplog.records


def test_padding_rows_do_not_hide_single_groups(caplog):
    rewards, mask = batch([1.0, 0.0, 0.0, 0.0])
    mask[2:] = 0
    compute_ms_grpo_advantage(rewards, mask, None, ["a", "b", "pad1", "pad1"])
    (record,) = caplog.records
    assert "rollout.n" in record.getMessage()


def test_empty_batch():
    advantages, _ = compute_ms_grpo_advantage(torch.zeros(0, 4), torch.zeros(0, 4), None, [])
    assert advantages.shape == (0, 4)
