import numpy as np
import pytest
import torch

from verl_msgrpo.estimator.groups import has_variance, merge_ties, unit_magnitude, unit_range


def varied(rewards, dtype):
    rewards = torch.tensor([rewards], dtype=dtype).double()
    return has_variance(*unit_magnitude(rewards), dtype).item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("largest", [0.9, -0.9, 1.0, 1.5, 3e4, 1e-7])
def test_a_range_of_8_ulp_of_the_largest_is_no_variance(dtype, largest):
    kind = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}[dtype]
    largest = kind(largest)
    ulp = abs(np.spacing(largest))
    towards_zero = kind(-np.sign(largest))
    assert not varied([largest, largest + 8 * ulp * towards_zero, largest], dtype)
    assert varied([largest, largest + 9 * ulp * towards_zero, largest], dtype)


def test_zeros_and_extremes():
    assert not varied([0.0, -0.0], torch.float32)
    assert varied([0.0, 5e-324 * 9], torch.float64)
    assert not varied([0.0, 5e-324 * 8], torch.float64)
    assert varied([-1.7e308, 1.7e308], torch.float64)


def test_unit_magnitude_and_range_are_exact_powers_of_two():
    rewards = torch.tensor(
        [[3.0, -5.0, 0.0], [1e-310, 3e-310, 0.0], [1e308, -1.7e308, 1.0]], dtype=torch.float64
    )
    scaled, exponent = unit_magnitude(rewards)
    assert scaled.abs().amax(dim=1).ge(0.5).all()
    assert scaled.abs().amax(dim=1).lt(1.0).all()
    assert np.array_equal(np.ldexp(scaled.numpy(), exponent.numpy()), rewards.numpy())
    scaled, exponent = unit_range(scaled)
    spread = scaled.amax(dim=1) - scaled.amin(dim=1)
    assert spread.ge(0.5).all()
    assert spread.le(1.0).all()


def test_ties_merge_into_the_lowest_within_8_ulp():
    one = np.float32(0.75)
    ulp = np.spacing(one)
    rewards = [one + 8 * ulp, 0.1, one, one + 3 * ulp, one + 9 * ulp, one + 17 * ulp]
    merged = merge_ties(torch.tensor([rewards], dtype=torch.float64), torch.float32)
    expected = [one, 0.1, one, one, one + 9 * ulp, one + 9 * ulp]
    assert merged.tolist() == [[float(x) for x in expected]]


def test_half_precision_levels_are_no_ties():
    rewards = torch.tensor([[0.5, 0.5039, 0.25]], dtype=torch.bfloat16).double()
    assert rewards[0, 0] != rewards[0, 1]
    assert torch.equal(merge_ties(rewards, torch.bfloat16), rewards)
