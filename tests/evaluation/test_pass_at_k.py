from itertools import combinations

import numpy as np
import pytest

from verl_msgrpo.evaluation.pass_at_k import pass_at_k


def estimate(n, c, k):
    return pass_at_k(np.array([n]), np.array([c]), k)[0]


@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (2, 0.5), (4, 1.0)])
def test_e01_one_of_four_is_right(k, expected):
    assert estimate(4, 1, k) == pytest.approx(expected, abs=1e-15)


def test_e01_drawing_with_replacement_would_be_too_low():
    assert pytest.approx(0.684, abs=5e-4) == 1 - (1 - 1 / 4) ** 4
    assert estimate(4, 1, 4) == 1.0


@pytest.mark.parametrize("n", range(1, 8))
def test_the_share_of_subsets_with_a_right_sample(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations([True] * c + [False] * (n - c), k))
            assert estimate(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_binomials_that_overflow():
    # One right sample among n is in a k-subset with chance k / n.
    assert estimate(5000, 1, 2500) == pytest.approx(0.5)


def test_prompts_keep_their_order_and_short_groups_have_no_estimate():
    result = pass_at_k(np.array([4, 1, 4, 2]), np.array([1, 1, 4, 0]), 2)
    np.testing.assert_allclose(result, [0.5, np.nan, 1.0, 0.0])
