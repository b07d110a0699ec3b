import dataclasses
import logging
import math

import numpy as np
import pytest
import torch

from verl_msgrpo import MSGRPOConfig
from verl_msgrpo.common import once
from verl_msgrpo.verl_plugin.estimator import (
    TrainerBatch,
    compute_ms_grpo_advantage,
    ms_grpo_config,
    trainer_batch,
)

core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
omegaconf = pytest.importorskip("omegaconf")

PLAIN = {"ms_grpo": {"num_scales": 1}}  # the scale G alone: GRPO


@pytest.fixture(autouse=True)
def _fresh_process():
    once.forget()


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


def test_the_four_arguments_are_enough_and_others_are_ignored():
    assert adv([1.0, 0.0], "aa") == adv([1.0, 0.0], "aa", foo=1, reward_baselines=None)


def test_without_index():
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
def test_std_flag_of_the_config(make, by_std, expected):
    config = make({"norm_adv_by_std_in_grpo": by_std, "ms_grpo": {"num_scales": 1}})
    assert adv([1.0, 0, 0, 0], "aaaa", config) == close(expected)


def test_struct_config_of_the_trainer():
    config = omegaconf.OmegaConf.create({"norm_adv_by_std_in_grpo": False, "gamma": 1.0})
    omegaconf.OmegaConf.set_struct(config, True)
    assert ms_grpo_config(config) == MSGRPOConfig(normalize_by_std=False)


def test_algo_config_of_verl():
    from verl.trainer.config import AlgoConfig

    assert ms_grpo_config(AlgoConfig(norm_adv_by_std_in_grpo=False)).normalize_by_std is False
    assert ms_grpo_config(AlgoConfig()).normalize_by_std is True


def test_uid_per_prompt_or_per_rollout(caplog):
    assert adv([1.0, 0, 1, 0], "aaaa") == close([0.866, -0.866, 0.866, -0.866])
    assert not caplog.records
    for _ in range(2):
        assert adv([1.0, 0, 1, 0], "abcd") == [0.0] * 4
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "rollout.n" in record.getMessage()
    assert "uid" in record.getMessage()


def test_interleaved_unequal_groups():
    expected = [1.1547, -0.7071, -0.5774, 0.7071, -0.5774]
    assert adv([1.0, 0, 0, 1, 0], "ababa") == close(expected)


def test_group_of_one():
    assert adv([0.7], "a") == [0.0]
    assert adv([0.7, 1.0, 0.0], "abb")[0] == 0.0


@pytest.mark.parametrize(("reward", "size"), [(0.9, 10), (0.3, 7)])
@pytest.mark.parametrize("config", [PLAIN, None, {"ms_grpo": {"preset": "paper"}}])
def test_no_variance(reward, size, config):
    assert adv([reward] * size, "a" * size, config) == [0.0] * size


def test_equal_after_summing_the_tokens():
    rewards = torch.zeros(4, 20)
    rewards[0, 0] = 0.9
    rewards[1, :9] = rewards[2, 4:13] = 0.1
    rewards[3, ::2] = 0.09
    assert rewards.sum(dim=1).unique().numel() > 1
    advantages, _ = compute_ms_grpo_advantage(rewards, torch.ones(4, 20), None, ["a"] * 4)
    assert not advantages.any()


def test_nan_reward():
    advantage = adv([1.0, math.nan, 0, 0, 1, 0], "aaaabb")
    assert advantage == close([1.1547, 0, -0.5774, -0.5774, 0.7071, -0.7071])
    assert advantage[1] == 0.0


def test_padding_rows():
    rewards = torch.rand(24, generator=torch.manual_seed(0)).tolist()
    uid = list("abc" * 8)
    for config in (None, {"ms_grpo": {"preset": "paper"}}, {"ms_grpo": {"max_terms": 300}}):
        padded = adv([*rewards, *[0.0] * 40], [*uid, *["pad0"] * 40], config)
        assert padded[:24] == adv(rewards, uid, config)
        assert not any(padded[24:])


def test_one_token_of_padding():
    token_level_rewards, mask = batch([1.0, 0.5, 0.0, 0.0])
    mask[3] = torch.tensor([1, 0, 0])
    padded, _ = compute_ms_grpo_advantage(token_level_rewards, mask, None, ["a", "a", "a", "p"])
    alone, _ = compute_ms_grpo_advantage(token_level_rewards[:3], mask[:3], None, ["a"] * 3)
    assert torch.equal(padded[:3], alone)
    assert not padded[3].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_tool_tokens(dtype):
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


@pytest.mark.parametrize("index", [[["a"], ["a"]], np.zeros((2, 1)), [{}, {}]])
def test_index_that_cannot_be_hashed(index):
    rewards, mask = batch([1.0, 0.0])
    with pytest.raises(ValueError, match=r"ms_grpo: index .* unhashable") as error:
        compute_ms_grpo_advantage(rewards, mask, PLAIN, index)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "index",
    [np.array([1.0, math.nan]), np.array(["a", np.float32("nan")], dtype=object), [math.nan] * 2],
)
def test_index_with_nan(index):
    rewards, mask = batch([1.0, 0.0])
    with pytest.raises(ValueError, match=r"ms_grpo: index .* NaN"):
        compute_ms_grpo_advantage(rewards, mask, PLAIN, index)


# --- an episode (session) is the sample


def adv_of_sessions(rewards, keys, config=PLAIN):
    with trainer_batch(TrainerBatch(keys, [False] * len(keys))):
        return adv(rewards, [key.split("_")[0] for key in keys], config)


def test_a_session_of_three_rows_counts_once():
    keys = ["u_0_0", "u_1_0", "u_1_1", "u_1_2"]
    expected = [0.7071, -0.7071, -0.7071, -0.7071]
    assert adv_of_sessions([1.0, 0, 0, 0], keys) == close(expected)
    assert adv_of_sessions([1.0, 5, -3, 0], keys) == close(expected)  # the last row is the outcome


def test_the_last_row_is_the_one_with_the_highest_index():
    keys = ["u_1_10", "u_0_0", "u_1_9", "u_1_0"]
    expected = [-0.7071, 0.7071, -0.7071, -0.7071]
    assert adv_of_sessions([0.0, 1, 7, 9], keys) == close(expected)


def test_masks_differ_between_the_rows_of_a_session():
    rewards, _ = batch([1.0, 0.0, 0.0])
    mask = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0]])
    with trainer_batch(TrainerBatch(["u_0_0", "u_1_0", "u_1_1"], [False] * 3)):
        advantages, _ = compute_ms_grpo_advantage(rewards, mask, PLAIN, ["u"] * 3)
    signs = torch.tensor([[1.0], [-1.0], [-1.0]])
    assert torch.allclose(advantages, math.sqrt(0.5) * signs * mask, atol=1e-4)


def test_statistics_are_over_episodes_not_turns():
    keys = ["u_0_0", "u_0_1", "u_1_0", "u_2_0", "u_2_1", "u_3_0"]
    over_4 = [1.5, -0.5, -0.5, -0.5]
    expected = [over_4[i] for i in (0, 0, 1, 2, 2, 3)]
    assert adv_of_sessions([0.0, 1, 0, 0, 0, 0], keys) == close(expected)


@pytest.mark.parametrize("config", [PLAIN, None, {"ms_grpo": {"preset": "paper"}}])
def test_sessions_of_one_row_change_nothing(config):
    rewards = torch.rand(24, generator=torch.manual_seed(0)).tolist()
    uid = list("abc" * 8)
    keys = [f"{u}_{i // 3}_0" for i, u in enumerate(uid)]
    assert adv_of_sessions(rewards, keys, config) == adv(rewards, uid, config)


def test_padding_and_keys_of_another_form_are_sessions_of_their_own():
    keys = ["u_0_0", "u_1_0", "u_1_1", "pad1_0_0", "pad1_1_0", "pad2", "pad2", "pad3_x"]
    padded = adv_of_sessions([1.0, 0, 0, 0, 0, 0, 0, 0], keys)
    assert padded == [*adv_of_sessions([1.0, 0, 0], keys[:3]), *[0.0] * 5]


def test_keys_of_another_batch_are_not_used():
    with trainer_batch(TrainerBatch(["u_0_0", "u_0_1"], [False] * 2)):
        assert adv([1.0, 0, 0], "uuu") == close([1.1547, -0.5774, -0.5774])


@pytest.mark.parametrize("seed", range(3))
def test_scale_g_alone_equals_verls_grpo_on_ragged_sessions(seed):
    from verl import DataProto
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    rng = np.random.default_rng(seed)
    keys = [
        f"id_{uid}_{session}_{turn}"  # uids may hold the separator
        for uid in range(6)
        for session in range(rng.integers(2, 7))
        for turn in range(rng.integers(1, 5))
    ]
    keys = [str(key) for key in rng.permutation(keys)]
    uid = np.array([key.rsplit("_", 2)[0] for key in keys], dtype=object)
    rewards = torch.from_numpy(rng.normal(size=(len(keys), 6))).float()
    mask = torch.from_numpy(rng.integers(0, 2, (len(keys), 6)))
    mask[:, 0] = 1  # verl reads the advantage off a token that counts
    data = DataProto.from_dict(
        tensors={"token_level_rewards": rewards, "response_mask": mask},
        non_tensors={"uid": uid},
    )
    theirs = compute_advantage_for_multi_trajectories(
        data, keys, core_algos.AdvantageEstimator.GRPO, config=AlgoConfig()
    ).batch["advantages"]
    with trainer_batch(TrainerBatch(keys, [False] * len(keys))):
        ours, _ = compute_ms_grpo_advantage(rewards, mask, {"ms_grpo": {"scales": [10**6]}}, uid)
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(
        compute_ms_grpo_advantage(rewards, mask, PLAIN, uid)[0], theirs, rtol=1e-2
    )


# --- settings


@pytest.mark.parametrize(
    ("given", "expected"),
    [("False", False), ("false", False), ("True", True), (" true ", True), (None, True)],
)
def test_std_flag_of_verl_as_text(given, expected):
    config = {"norm_adv_by_std_in_grpo": given}
    assert ms_grpo_config(config).normalize_by_std is expected
    assert ms_grpo_config(omegaconf.OmegaConf.create(config)).normalize_by_std is expected


def test_std_flag_of_verl_from_the_environment(monkeypatch):
    monkeypatch.setenv("BY_STD", "False")
    config = omegaconf.OmegaConf.create({"norm_adv_by_std_in_grpo": "${oc.env:BY_STD}"})
    assert ms_grpo_config(config).normalize_by_std is False


@pytest.mark.parametrize("given", ["no", "", 0, 1, [False], pytest.param("[" * 100_000, id="deep")])
def test_std_flag_of_verl_that_is_no_bool(given):
    with pytest.raises(ValueError, match=r"^algorithm\.norm_adv_by_std_in_grpo: .* got") as error:
        ms_grpo_config({"norm_adv_by_std_in_grpo": given})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ms_grpo": {"scales": "${nope}"}}, r"ms_grpo: .*nope.*scales"),
        ({"ms_grpo": "${nope}"}, "ms_grpo: .*nope"),
        ({"ms_grpo": {"seed": "${oc.env:NO_SUCH_VARIABLE}"}}, "ms_grpo: .*NO_SUCH_VARIABLE"),
        ({"ms_grpo": {"seed": "${.seed}"}}, "ms_grpo: "),
        ({"norm_adv_by_std_in_grpo": "${nope}"}, "norm_adv_by_std_in_grpo: .*nope"),
    ],
)
def test_interpolations_that_lead_nowhere(settings, named):
    with pytest.raises(ValueError, match=f"^algorithm.{named}") as error:
        ms_grpo_config(omegaconf.OmegaConf.create(settings))
    assert "\n" not in str(error.value)


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


def test_nan_rewards_are_said_once(caplog):
    adv([1.0, 1, 0, 0], "aaaa")
    assert not caplog.records
    adv([1.0, math.nan, 0, math.inf], "aaaa")
    adv([math.nan] * 4, "aaaa")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "50.0% of this batch's rewards are NaN or infinite" in record.getMessage()


def test_a_first_batch_of_nan_rewards(caplog):
    assert adv([math.nan] * 4, "aaaa") == [0.0] * 4
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "no group has rewards that differ" in said[0]
    assert "100.0% of this batch's rewards are NaN" in said[1]


def test_padding_rows_do_not_hide_single_groups(caplog):
    rewards, mask = batch([1.0, 0.0, 0.0, 0.0])
    mask[2:] = 0
    compute_ms_grpo_advantage(rewards, mask, None, ["a", "b", "pad1", "pad1"])
    (record,) = caplog.records
    assert "rollout.n" in record.getMessage()


def test_empty_batch():
    advantages, _ = compute_ms_grpo_advantage(torch.zeros(0, 4), torch.zeros(0, 4), None, [])
    assert advantages.shape == (0, 4)
