import json
import logging
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages
from verl_msgrpo.common import once
from verl_msgrpo.estimator import advantages, exact, exact_tiles
from verl_msgrpo.estimator.advantages import ms_grpo_advantages_by_group
from verl_msgrpo.estimator.diverse import subgroup_design
from verl_msgrpo.estimator.reference import reference_advantages
from verl_msgrpo.estimator.scales import dilated_scales

VECTORS = json.loads((Path(__file__).parent / "vectors" / "ms_grpo.json").read_text())
ALL = MSGRPOConfig(subgroups="all")
EXACT = MSGRPOConfig(subgroups="all", epsilon=0)


def of_one_group(rewards, config=None, dtype=torch.float64):
    return ms_grpo_advantages(torch.tensor([rewards], dtype=dtype), config)[0].tolist()


def by_definition(rewards, *settings, **named):
    """The reference in exact arithmetic, but for the square root."""
    return reference_advantages([Fraction(reward) for reward in rewards], *settings, **named)


def grpo(rewards):
    """verl's `grpo` for equal groups."""
    std, mean = torch.std_mean(rewards, dim=1, keepdim=True)
    return (rewards - mean) / (std + 1e-6)


def close(value, tolerance=1e-12):
    return pytest.approx(value, abs=tolerance, rel=tolerance)


@pytest.mark.parametrize("config", [None, MSGRPOConfig(preset="paper"), ALL])
@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0, 0)])
def test_no_rewards(shape, config):
    assert ms_grpo_advantages(torch.zeros(shape), config).shape == shape


# --- exact values


@pytest.mark.parametrize("case", VECTORS, ids=[f"{i}-{v['kind']}" for i, v in enumerate(VECTORS)])
def test_vectors(case):
    config = MSGRPOConfig(
        scales=case.get("scales"),
        scale_weights=case.get("weights"),
        normalize_by_std=case.get("normalize"),
        subgroups="all",
    )
    assert of_one_group(case["rewards"], config) == close(case["expected"], 1e-9)


def test_pair():
    assert of_one_group([1.0, 0.0], EXACT) == close([math.sqrt(0.5), -math.sqrt(0.5)])


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        (None, [0.6889, 0.7866, 0.8223, 0.8320, 0.8223, 0.7866, 0.6889]),
        ([2, 4, 6, 8], [0.6791, 0.7653, 0.7979, 0.8067, 0.7979, 0.7653, 0.6791]),
    ],
)
def test_binary_rewards_are_rescaled_grpo(scales, expected):
    rewards = torch.tensor([[1.0] * k + [0.0] * (8 - k) for k in range(1, 8)], dtype=torch.float64)
    multi = ms_grpo_advantages(rewards, MSGRPOConfig(scales=scales, epsilon=0))
    single = ms_grpo_advantages(rewards, MSGRPOConfig(scales=[8], epsilon=0))
    ratio = multi / single
    assert ratio[:, 0].tolist() == pytest.approx(expected, abs=5e-5)
    assert torch.allclose(ratio, ratio[:, :1].expand(-1, 8), rtol=1e-12)


@pytest.mark.parametrize("group_size", [64, 256])
@pytest.mark.parametrize("share", [1, 3, 32])
def test_large_binary_groups(group_size, share):
    """Against the hypergeometric sum in big integers."""
    positives = share * group_size // 64
    rewards = torch.zeros(1, group_size, dtype=torch.float64)
    rewards[0, :positives] = 1
    total = 0.0
    for tau in range(2, group_size + 1):
        ways = 0.0
        subgroups = math.comb(group_size - 1, tau - 1)
        for k in range(1, min(positives, tau - 1) + 1):
            if tau - k > group_size - positives:
                continue
            number = math.comb(positives - 1, k - 1) * math.comb(group_size - positives, tau - k)
            std = math.sqrt(k * (tau - k) / (tau * (tau - 1)))
            ways += number / subgroups * (1 - k / tau) / (std + 1e-6)
        total += ways / (group_size - 1)
    multi = ms_grpo_advantages(rewards, ALL)[0]
    assert multi[0].item() == close(total, 1e-10)
    assert multi[:positives].unique().numel() == 1
    assert multi.sum().item() == close(0, 1e-9)


def test_undivided_is_a_rescaling_of_the_centred_rewards():
    rewards = torch.randn(5, 8, dtype=torch.float64, generator=torch.manual_seed(0))
    config = MSGRPOConfig(normalize_by_std=False)
    expected = 0.8623906705539358 * (rewards - rewards.mean(dim=1, keepdim=True))
    assert torch.allclose(ms_grpo_advantages(rewards, config), expected, rtol=1e-12, atol=1e-14)


def test_undivided_needs_no_terms():
    rewards = torch.randn(2, 300, dtype=torch.float64, generator=torch.manual_seed(0))
    config = MSGRPOConfig(normalize_by_std=False, subgroups="all", max_terms=1)
    factor = sum((t - 1) / t for t in range(2, 301)) / 299 * 300 / 299
    expected = factor * (rewards - rewards.mean(dim=1, keepdim=True))
    assert torch.allclose(ms_grpo_advantages(rewards, config), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("group_size", [2, 5, 8, 40, 300])
def test_the_group_alone_is_grpo(group_size):
    rewards = torch.randn(6, group_size, dtype=torch.float64, generator=torch.manual_seed(1))
    config = MSGRPOConfig(scales=[group_size], subgroups="all")
    assert torch.allclose(ms_grpo_advantages(rewards, config), grpo(rewards), rtol=1e-12)
    assert torch.allclose(
        ms_grpo_advantages(rewards, MSGRPOConfig(num_scales=1)), grpo(rewards), rtol=1e-12
    )


def test_few_scales_of_a_large_group_need_few_terms():
    """Pairs of 40 different rewards, and the whole group."""
    rewards = torch.randn(1, 40, dtype=torch.float64, generator=torch.manual_seed(2))
    signs = (rewards[0, :, None] - rewards[0]).sign().sum(dim=1) / 39 * math.sqrt(0.5)
    config = MSGRPOConfig(scales=[2, 40], scale_weights=[3, 1], subgroups="all", epsilon=0)
    std, mean = torch.std_mean(rewards[0], dim=0)
    expected = 0.75 * signs + 0.25 * (rewards[0] - mean) / std
    assert torch.allclose(ms_grpo_advantages(rewards, config)[0], expected, rtol=1e-12)


reward = st.one_of(
    st.sampled_from([0.0, 0.1, 0.5, 1.0, -1.0]),
    st.floats(-10, 10, width=32),
    st.floats(0, 2**-20, width=32),
    st.integers(-4, 4).map(lambda k: 1.0 + k * 2.0**-20),
)


@settings(max_examples=150, deadline=None)
@given(
    rewards=st.lists(reward, min_size=2, max_size=7),
    epsilon=st.sampled_from([0.0, 1e-6, 0.1]),
    data=st.data(),
)
def test_brute_force(rewards, epsilon, data):
    size = len(rewards)
    scales = data.draw(st.lists(st.integers(2, size), min_size=1, max_size=3, unique=True))
    weights = data.draw(st.lists(st.floats(0.1, 3), min_size=len(scales), max_size=len(scales)))
    normalize = data.draw(st.booleans())
    config = MSGRPOConfig(
        scales=scales,
        scale_weights=weights,
        epsilon=epsilon,
        normalize_by_std=normalize,
        subgroups="all",
    )
    # Rewards below the resolution that equality is defined with are another test's business.
    rewards = [0.0 if abs(x) < 1e-30 else x for x in rewards]
    expected = by_definition(rewards, scales, weights, epsilon, normalize)
    assert of_one_group(rewards, config) == close(expected, 1e-11)


@settings(max_examples=30, deadline=None)
@given(rewards=st.lists(reward, min_size=9, max_size=10))
def test_every_scale_by_brute_force(rewards):
    rewards = [0.0 if abs(x) < 1e-30 else x for x in rewards]
    assert of_one_group(rewards, ALL) == close(by_definition(rewards), 1e-11)


def test_tight_clusters_keep_their_precision():
    """Spreads of 1e-12 inside a range of 1000, epsilon 0: nothing cancels."""
    rewards = [0.0, 1e-12, 3e-12, 1000.0, 1.0, 1.0 + 2**-48]
    assert of_one_group(rewards, EXACT) == close(by_definition(rewards, epsilon=0))


# --- invariances


def test_shift_and_scale():
    rewards = torch.randn(20, 8, dtype=torch.float64, generator=torch.manual_seed(3))
    base = ms_grpo_advantages(rewards, EXACT)
    assert (ms_grpo_advantages(rewards + 1e6, EXACT) - base).abs().max() < 1e-6
    assert (ms_grpo_advantages(rewards * 1e-3, EXACT) - base).abs().max() < 1e-12
    assert torch.equal(ms_grpo_advantages(rewards * 2.0**-900, EXACT), base)
    assert torch.equal(ms_grpo_advantages(rewards * 2.0**1000, EXACT), base)


def test_permuting_a_group_permutes_its_advantages():
    generator = torch.manual_seed(4)
    for rewards in (
        torch.randn(9, dtype=torch.float64, generator=generator),
        torch.randint(0, 3, (9,), generator=generator).double(),
    ):
        order = torch.randperm(9, generator=generator)
        base = ms_grpo_advantages(rewards[None], ALL)[0]
        assert torch.equal(ms_grpo_advantages(rewards[order][None], ALL)[0], base[order])


def test_every_group_sums_to_zero():
    generator = torch.manual_seed(5)
    for size in (2, 7, 12):
        rewards = torch.rand(50, size, dtype=torch.float64, generator=generator)
        assert ms_grpo_advantages(rewards, ALL).sum(dim=1).abs().max() < 1e-12


def test_equal_rewards_get_equal_advantages():
    advantage = of_one_group([0.3, 0.9, 0.3, 0.1, 0.9, 0.3], ALL)
    assert len({advantage[0], advantage[2], advantage[5]}) == 1
    assert advantage[1] == advantage[4]


# --- zeros


@pytest.mark.parametrize("subgroups", ["all", "diverse", "auto"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_variance_is_exactly_zero(subgroups, normalize, dtype):
    config = MSGRPOConfig(subgroups=subgroups, normalize_by_std=normalize, epsilon=0)
    for value, size in ((0.9, 10), (0.3, 7), (0.0, 4), (-1e-3, 3)):
        assert of_one_group([value] * size, config, dtype) == [0.0] * size


def test_rounding_noise_is_no_variance_in_the_dtype_of_the_rewards():
    noise = 4 * 2.0**-24
    rewards = [0.9, 0.9 + noise, 0.9, 0.9 - noise]
    assert of_one_group(rewards, dtype=torch.float32) == [0.0] * 4
    assert of_one_group(rewards, dtype=torch.float64)[1] > 0.01


def test_rounding_noise_inside_a_subgroup_is_no_variance_either():
    summed = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float32)
    nearly = [(summed[0] + summed[1]).item(), summed[2].item(), 1.0, 0.3 + 2**-24]
    for config in (EXACT, MSGRPOConfig(subgroups="diverse", epsilon=0)):
        advantage = of_one_group(nearly, config, torch.float32)
        assert advantage[0] == advantage[1] == advantage[3]


def test_groups_of_one_or_none_get_zero():
    assert of_one_group([0.7]) == [0.0]
    assert ms_grpo_advantages(torch.zeros(0, 8)).shape == (0, 8)
    assert ms_grpo_advantages(torch.zeros(3, 0)).shape == (3, 0)


# --- rewards that do not count


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("subgroups", ["all", "diverse"])
def test_non_finite_rewards_get_zero_and_do_not_count(bad, subgroups):
    config = MSGRPOConfig(num_scales=3, subgroups=subgroups)
    rest = of_one_group([1.0, 0.2, 0.5, 0.0, 0.7], config)
    assert of_one_group([1.0, bad, 0.2, 0.5, bad, 0.0, 0.7], config) == [
        rest[0], 0.0, rest[1], rest[2], 0.0, rest[3], rest[4],
    ]  # fmt: skip


def test_groups_with_one_or_no_finite_reward_get_zero():
    assert of_one_group([math.nan, 1.0, math.inf]) == [0.0] * 3
    assert of_one_group([math.nan] * 3) == [0.0] * 3


def test_a_bad_reward_leaves_other_groups_alone():
    rewards = torch.tensor([[1.0, math.nan, 0.0], [1.0, 0.5, 0.0]], dtype=torch.float64)
    both = ms_grpo_advantages(rewards, ALL)
    assert torch.equal(both[1], ms_grpo_advantages(rewards[1:], ALL)[0])
    assert both[0].tolist() == close([0.7071058, 0, -0.7071058], 1e-6)


def test_extreme_rewards_stay_finite():
    rewards = [1.7e308, -1.7e308, 0.0, 5e-324, 1.0]
    for config in (ALL, EXACT, MSGRPOConfig(subgroups="diverse"), MSGRPOConfig(preset="paper")):
        assert all(math.isfinite(x) for x in of_one_group(rewards, config))
    undivided = of_one_group([3e38] * 7 + [-3e38], MSGRPOConfig(normalize_by_std=False))
    assert all(math.isfinite(x) for x in undivided)
    assert of_one_group([0.0, 1e-310, 3e-310], EXACT) == close(
        by_definition([0, 1, 3], epsilon=0), 1e-9
    )


# --- tensors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    rewards = [1.0, 0.25, 0.5, 0.0]
    result = ms_grpo_advantages(torch.tensor([rewards], dtype=dtype))
    assert result.dtype == dtype
    assert result[0].tolist() == pytest.approx(
        of_one_group(rewards), abs=8 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool])
def test_integers_give_the_default_float_dtype(dtype):
    result = ms_grpo_advantages(torch.tensor([[1, 0, 0, 0]]).to(dtype))
    assert result.dtype == torch.get_default_dtype()
    assert result[0].tolist() == pytest.approx(of_one_group([1.0, 0.0, 0.0, 0.0]), abs=1e-6)


def test_no_gradient_no_change_and_any_layout():
    rewards = torch.randn(8, 6, generator=torch.manual_seed(6)).requires_grad_()
    before = rewards.detach().clone()
    result = ms_grpo_advantages(rewards)
    assert not result.requires_grad
    assert torch.equal(rewards.detach(), before)
    assert torch.equal(ms_grpo_advantages(before.T.contiguous().T), result)


def test_threads_are_left_as_they_were():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ms_grpo_advantages(torch.tensor([[1.0, 0.0]]))
        with pytest.raises(ValueError, match="max_terms"):
            ms_grpo_advantages(torch.rand(1, 8), MSGRPOConfig(subgroups="all", max_terms=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_wrong_input_is_refused():
    with pytest.raises(TypeError, match="tensor"):
        ms_grpo_advantages([[1.0, 0.0]])
    with pytest.raises(TypeError, match="real"):
        ms_grpo_advantages(torch.zeros(1, 2, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"\(P, G\)"):
        ms_grpo_advantages(torch.zeros(3))
    with pytest.raises(ValueError, match="group_index"):
        ms_grpo_advantages_by_group(torch.zeros(3), torch.zeros(2, dtype=torch.int64))


# --- ragged groups


def test_by_group_equals_each_group_alone():
    generator = torch.manual_seed(7)
    sizes = [1, 8, 3, 8, 2, 5, 1, 3]
    rewards = [torch.rand(size, dtype=torch.float64, generator=generator) for size in sizes]
    rewards[1][3] = math.nan
    names = torch.tensor([5, -3, 10**12, 0, 7, 1, 2, 3])  # any numbers name the groups
    index = torch.cat([names[i].expand(size) for i, size in enumerate(sizes)])
    shuffled = torch.randperm(len(index), generator=generator)
    result = ms_grpo_advantages_by_group(torch.cat(rewards)[shuffled], index[shuffled])
    for i, group in enumerate(rewards):
        alone = ms_grpo_advantages(group[None])[0]
        members = index[shuffled] == names[i]
        positions = torch.empty(len(index), dtype=torch.int64)
        positions[shuffled] = torch.arange(len(index))
        assert torch.equal(result[positions[index == names[i]]], alone), members


def test_a_large_homogeneous_group_has_no_influence(caplog):
    """verl's padding rows share one uid: they must not exhaust the budget of "all"."""
    generator = torch.manual_seed(8)
    rewards = torch.rand(80, dtype=torch.float64, generator=generator)
    index = torch.arange(10).repeat_interleave(8)
    padded = torch.cat([rewards, torch.zeros(5000, dtype=torch.float64)])
    padded_index = torch.cat([index, torch.full((5000,), 99)])
    result = ms_grpo_advantages_by_group(padded, padded_index, ALL)
    assert torch.equal(result[:80], ms_grpo_advantages_by_group(rewards, index, ALL))
    assert not result[80:].any()


# --- all, diverse, auto


def test_all_refuses_what_exceeds_the_budget_and_says_what_to_do():
    with pytest.raises(ValueError, match=r"ms_grpo\.max_terms: .* 65519 .*auto") as error:
        ms_grpo_advantages(torch.rand(1, 16), MSGRPOConfig(subgroups="all", max_terms=65518))
    assert "\n" not in str(error.value)
    ms_grpo_advantages(torch.rand(1, 16), MSGRPOConfig(subgroups="all", max_terms=65519))


def test_auto_never_mixes(caplog):
    once.forget()
    generator = torch.manual_seed(9)
    small = torch.rand(8, dtype=torch.float64, generator=generator)
    large = torch.rand(20, dtype=torch.float64, generator=generator)
    both = torch.cat([small, large])
    index = torch.tensor([0] * 8 + [1] * 20)
    auto = MSGRPOConfig(num_scales=4, subgroups="auto")
    diverse = MSGRPOConfig(num_scales=4, subgroups="diverse")
    all_ = MSGRPOConfig(num_scales=4, subgroups="all")
    with caplog.at_level(logging.INFO, "verl_msgrpo.estimator.advantages"):
        for _ in range(2):
            result = ms_grpo_advantages_by_group(both, index, auto)
            assert torch.equal(result, ms_grpo_advantages_by_group(both, index, diverse))
        for _ in range(2):
            result = ms_grpo_advantages(small[None], auto)
            assert torch.equal(result, ms_grpo_advantages(small[None], all_))
        assert not torch.equal(result, ms_grpo_advantages(small[None], diverse))
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2
    assert 'takes "diverse"' in logged[0]
    assert 'takes "all"' in logged[1]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("size", [5, 8, 9])
def test_diverse_by_brute_force(size, normalize):
    config = MSGRPOConfig(preset="paper", seed=3, normalize_by_std=normalize)
    scales = sorted(set(dilated_scales(size, 4)))
    subgroups = [subgroup_design(size, tau, 8, 3).tolist() for tau in scales]
    generator = torch.manual_seed(10)
    for rewards in (
        torch.rand(size, dtype=torch.float64, generator=generator).tolist(),
        torch.randint(0, 2, (size,), generator=generator).double().tolist(),
    ):
        expected = by_definition(rewards, scales, normalize=normalize, subgroups=subgroups)
        assert of_one_group(rewards, config) == close(expected, 1e-10)


def test_balanced_diverse_groups_sum_to_zero():
    rewards = torch.rand(50, 8, dtype=torch.float64, generator=torch.manual_seed(11))
    result = ms_grpo_advantages(rewards, MSGRPOConfig(preset="paper"))
    assert result.sum(dim=1).abs().max() < 1e-12


def test_diverse_is_the_same_in_every_process():
    code = (
        "import torch; from verl_msgrpo import *; "
        "r = torch.arange(24.0, dtype=torch.float64).reshape(2, 12).sin(); "
        "print(ms_grpo_advantages(r, MSGRPOConfig(preset='paper', seed=5)).tolist())"
    )
    rewards = torch.arange(24.0, dtype=torch.float64).reshape(2, 12).sin()
    here = ms_grpo_advantages(rewards, MSGRPOConfig(preset="paper", seed=5))
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(there) == here.tolist()


def test_a_process_that_configures_no_logging_says_that_auto_is_not_exact():
    code = (
        "import torch; from verl_msgrpo import ms_grpo_advantages as a; "
        "a(torch.arange(16.0)[None]); print('exact', flush=True); "
        "a(torch.arange(24.0)[None]); a(torch.arange(25.0)[None])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "exact\n"
    (line,) = done.stderr.splitlines()
    assert 'takes "diverse"' in line
    assert "ms_grpo.max_terms" in line


def test_chunks_do_not_change_the_result(monkeypatch):
    rewards = torch.rand(7, 11, dtype=torch.float64, generator=torch.manual_seed(12))
    rewards[:3] = (4 * rewards[:3]).round()  # few terms: one table
    whole = ms_grpo_advantages(rewards, ALL)
    for module in (exact, exact_tiles):
        monkeypatch.setattr(module, "CELLS_AT_ONCE", 100)
    assert torch.allclose(ms_grpo_advantages(rewards, ALL), whole, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(advantages, "CACHED_TERMS", 0)
    assert torch.allclose(ms_grpo_advantages(rewards, ALL), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.filterwarnings("error")
def test_nothing_warns():
    for rewards in (torch.zeros(2, 4), torch.rand(2, 9), torch.tensor([[1e-300, 0.0]]).double()):
        for config in (ALL, EXACT, MSGRPOConfig(preset="paper")):
            ms_grpo_advantages(rewards, config)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("settings", [{}, {"preset": "paper"}, {"normalize_by_std": False}])
def test_cuda_tensors_give_what_cpu_tensors_give(settings):
    rewards = torch.randn(32, 8, generator=torch.manual_seed(0))
    config = MSGRPOConfig(**settings)
    on_gpu = ms_grpo_advantages(rewards.cuda(), config)
    assert on_gpu.device.type == "cuda"
    assert torch.equal(on_gpu.cpu(), ms_grpo_advantages(rewards, config))
