"""Metrics against closed forms, and against the definition in exact arithmetic."""

import math

import numpy as np
import pytest
import torch

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages_by_group
from verl_msgrpo.estimator.diverse import subgroup_design
from verl_msgrpo.estimator.metrics import ms_grpo_advantages_and_metrics
from verl_msgrpo.estimator.reference import reference_advantages

EVERY_SCALE = [0.6889, 0.7866, 0.8223, 0.8320, 0.8223, 0.7866, 0.6889]


def metrics_of(*groups, dtype=torch.float64, **settings):
    rewards = torch.tensor([reward for group in groups for reward in group], dtype=dtype)
    index = torch.tensor([number for number, group in enumerate(groups) for _ in group])
    found, metrics = ms_grpo_advantages_and_metrics(rewards, index, MSGRPOConfig(**settings))
    assert torch.equal(found, ms_grpo_advantages_by_group(rewards, index, MSGRPOConfig(**settings)))
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    return metrics


@pytest.mark.parametrize("right", range(1, 8))
def test_binary_rewards_are_a_rescaled_grpo(right):
    metrics = metrics_of([1.0] * right + [0.0] * (8 - right), epsilon=0.0)
    p = right / 8
    # GRPO gives the right ones (1 - p) / s and the others -p / s, with s^2 = p (1 - p) 8 / 7.
    grpo = 2 * p * (1 - p) / math.sqrt(p * (1 - p) * 8 / 7)
    assert metrics == pytest.approx(
        {
            "groups": 1,
            "homogeneous_share": 0,
            "nonfinite_share": 0,
            "scale": EVERY_SCALE[right - 1],
            "correction": 0,
            "sign_flips": 0,
            "distinct_rewards": 2,
            "subgroups": 2**8 - 1 - 8,
            "exact_share": 1,
            "adv_abs_mean": EVERY_SCALE[right - 1] * grpo,
            "grpo_adv_abs_mean": grpo,
            "design_noise": 0,
        },
        abs=5e-5,
    )
    assert metrics["correction"] < 1e-12


def test_without_std_division_the_scale_is_f():
    rewards = [0.3, -1.0, 2.5, 0.0, 7.0, 0.1, 0.2, 0.9]
    metrics = metrics_of(rewards, normalize_by_std=False)
    assert metrics["scale"] == pytest.approx(0.8623906705539358, abs=1e-12)
    assert metrics["correction"] < 1e-12
    grpo = np.abs(np.array(rewards) - np.mean(rewards)).mean()
    assert metrics["grpo_adv_abs_mean"] == pytest.approx(grpo)
    assert metrics["adv_abs_mean"] == pytest.approx(0.8623906705539358 * grpo)


def by_definition(rewards, ours):
    grpo = np.array(reference_advantages(rewards, scales=[len(rewards)]))
    ours = np.array(ours)
    (scale,), *_ = np.linalg.lstsq(grpo[:, None], ours, rcond=None)
    return {
        "scale": scale,
        "correction": np.linalg.norm(ours - scale * grpo) / np.linalg.norm(ours),
        "sign_flips": np.mean(np.sign(ours) * np.sign(grpo) < 0),
        "distinct_rewards": len(set(rewards)),
        "adv_abs_mean": np.abs(ours).mean(),
        "grpo_adv_abs_mean": np.abs(grpo).mean(),
    }


def assert_means(metrics, per_group):
    for name in per_group[0]:
        expected = np.mean([group[name] for group in per_group])
        assert metrics[name] == pytest.approx(expected, rel=1e-7, abs=1e-9), name


def test_groups_of_several_sizes_against_the_definition():
    rng = np.random.default_rng(0)
    groups = [(np.exp(3 * rng.normal(size=size))).tolist() for size in (3, 8, 8, 5, 8, 7)]
    groups += [rng.integers(0, 4, size).astype(float).tolist() for size in (6, 8, 8)]
    metrics = metrics_of(*groups, [1.0, 1.0, 1.0])
    per_group = [by_definition(rewards, reference_advantages(rewards)) for rewards in groups]
    assert sum(group["sign_flips"] for group in per_group) > 0  # the case holds some
    assert_means(metrics, per_group)
    assert metrics["groups"] == 10
    assert metrics["homogeneous_share"] == pytest.approx(0.1)
    assert metrics["subgroups"] == np.mean([2 ** len(group) - 1 - len(group) for group in groups])
    assert metrics["exact_share"] == 1
    assert metrics["design_noise"] == 0


def test_the_papers_preset_against_the_definition():
    rng = np.random.default_rng(1)
    groups = [rng.normal(size=8).tolist() for _ in range(5)]
    metrics = metrics_of(*groups, preset="paper")
    scales = [2, 4, 6, 8]
    chosen = [subgroup_design(8, scale, 8, 0).tolist() for scale in scales]
    per_group = [
        by_definition(rewards, reference_advantages(rewards, scales, subgroups=chosen))
        for rewards in groups
    ]
    assert_means(metrics, per_group)
    assert metrics["subgroups"] == 8 + 8 + 8 + 1
    assert metrics["exact_share"] == 0


def test_a_small_group_has_no_more_than_all_subgroups():
    metrics = metrics_of([0.0, 1.0, 5.0], [0.0, 1.0, 5.0, 7.0, 8.0, 9.0, 9.5, 9.7], preset="paper")
    assert metrics["exact_share"] == 0.5
    assert metrics["subgroups"] == (3 + 1 + 25) / 2


def test_noise_where_all_subgroups_are_too_many():
    rewards = torch.randn(40, generator=torch.manual_seed(0)).tolist()
    metrics = metrics_of(rewards, subgroups="diverse")
    assert metrics["exact_share"] == 0
    assert 0 < metrics["design_noise"] < 1


def test_noise_weighs_sizes_by_their_groups():
    rng = np.random.default_rng(2)
    matching = {"scales": [2], "subgroups": "diverse", "subgroups_per_scale": 1}
    fours, eights = ([rng.normal(size=size).tolist() for _ in range(64)] for size in (4, 8))
    of_fours, of_eights, of_both = (
        metrics_of(*groups, **matching)["design_noise"]
        for groups in (fours, eights, fours + eights)
    )
    assert min(of_fours, of_eights) < of_both < max(of_fours, of_eights)
    every_pair = {**matching, "subgroups_per_scale": 6}
    assert metrics_of(*fours, **every_pair)["design_noise"] == 0


@pytest.mark.filterwarnings("error")
def test_a_group_whose_chosen_subgroups_all_have_no_variance():
    """Pairs {0, 1} and {2, 3} of 0, 0, 1, 1 compare nothing: A is 0, and no multiple of GRPO."""
    pairs = {"scales": [2], "subgroups": "diverse", "subgroups_per_scale": 1, "epsilon": 0.0}
    design = subgroup_design(4, 2, 1, 0).tolist()
    rewards = [0.0] * 4
    for place in design[1]:
        rewards[place] = 1.0
    metrics = metrics_of(rewards, **pairs)
    assert {metrics[name] for name in ("scale", "correction", "sign_flips", "adv_abs_mean")} == {0}
    assert metrics["grpo_adv_abs_mean"] == pytest.approx(0.5 / math.sqrt(1 / 3))
    beside = metrics_of(rewards, [0.0, 1.0, 2.0, 4.0], **pairs)
    alone = metrics_of([0.0, 1.0, 2.0, 4.0], **pairs)
    assert beside["scale"] == pytest.approx(alone["scale"] / 2)


@pytest.mark.parametrize("size", [1000, 1024, 1030, 2000])
@pytest.mark.parametrize("settings", [{}, {"normalize_by_std": False}, {"preset": "paper"}])
def test_large_groups(size, settings):
    metrics = metrics_of([1.0] * 3 + [0.0] * (size - 3), **settings)
    if settings == {"preset": "paper"}:
        assert metrics["exact_share"] == 0
        # 2, 668, 1334 and all of 1000, say: K grows until everybody is covered.
        assert metrics["subgroups"] < size
    else:
        assert metrics["exact_share"] == 1
        expected = 2.0**1000 if size == 1000 else math.inf
        assert metrics["subgroups"] == pytest.approx(min(expected, 1e300), rel=1e-9)


def test_rewards_that_do_not_count_are_a_share_of_all():
    metrics = metrics_of([1.0, 0.0, math.nan, 2.0], [1.0, math.inf, -math.inf, 1.0])
    assert metrics["nonfinite_share"] == pytest.approx(3 / 8)
    assert metrics["homogeneous_share"] == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], {"groups": 0}),
        (
            [[1.0, 1.0], [0.0], [math.nan, 2.0]],
            {"groups": 3, "homogeneous_share": 1, "nonfinite_share": 0.2},
        ),
    ],
)
def test_without_signal_there_is_nothing_to_average(groups, expected):
    assert metrics_of(*groups) == pytest.approx(expected)


@pytest.mark.parametrize("settings", [{}, {"normalize_by_std": False}, {"preset": "paper"}])
def test_extreme_rewards_give_finite_metrics(settings):
    groups = [
        [1e308, -1e308, 0.0, 1.0],
        [1e-320, 0.0, 2e-320, 5e-320],
        [1e300, 1.0, 2.0, 1.0],
        [math.nan, math.inf, 1.0, 2.0],
    ]
    metrics = metrics_of(*groups, **settings)
    assert metrics["groups"] == 4
    assert 0 < metrics["scale"] < 1.5


def test_epsilon_is_in_both_methods():
    metrics = metrics_of([1.0, 0.0], epsilon=1.0)
    expected = 0.5 / (math.sqrt(0.5) + 1)
    assert metrics["grpo_adv_abs_mean"] == pytest.approx(expected)
    assert metrics["adv_abs_mean"] == pytest.approx(expected)
    assert metrics["scale"] == pytest.approx(1)
