"""pass@k and maj@k against going through all subsets, and against closed forms."""

import math
import random
from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from verl_msgrpo.evaluation.at_k import maj_at_k, pass_at_k

# --- pass@k ---------------------------------------------------------------------------------------


def pass_of_one(n, c, k):
    return pass_at_k(np.array([n]), np.array([c]), k)[0]


@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (2, 0.5), (4, 1.0)])
def test_one_of_four_is_right(k, expected):
    assert pass_of_one(4, 1, k) == pytest.approx(expected, abs=1e-15)


def test_drawing_with_replacement_would_be_too_low():
    assert pytest.approx(0.684, abs=5e-4) == 1 - (1 - 1 / 4) ** 4
    assert pass_of_one(4, 1, 4) == 1.0


@pytest.mark.parametrize("n", range(1, 8))
def test_the_share_of_subsets_with_a_right_sample(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations([True] * c + [False] * (n - c), k))
            assert pass_of_one(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_binomials_that_overflow():
    # One right sample among n is in a k-subset with chance k / n.
    assert pass_of_one(5000, 1, 2500) == pytest.approx(0.5)


def test_prompts_keep_their_order_and_short_groups_have_no_pass_of_one():
    result = pass_at_k(np.array([4, 1, 4, 2]), np.array([1, 1, 4, 0]), 2)
    np.testing.assert_allclose(result, [0.5, np.nan, 1.0, 0.0])


# --- maj@k ----------------------------------------------------------------------------------------


def by_enumeration(counts, correct, silent, k):
    samples = [answer for answer, count in enumerate(counts) for _ in range(count)]
    samples += [None] * silent
    total = Fraction(0)
    subsets = list(combinations(samples, k))
    for subset in subsets:
        votes = Counter(answer for answer in subset if answer is not None)
        top = [a for a, n in votes.items() if n == max(votes.values())]
        total += sum((Fraction(correct[a]) for a in top), Fraction(0)) / max(len(top), 1)
    return float(total / len(subsets))


def test_against_every_subset():
    rng = random.Random(0)
    for _ in range(60):
        counts = [rng.randint(1, 4) for _ in range(rng.randint(0, 4))]
        correct = [rng.choice([0.0, 0.0, 1.0, 0.5]) for _ in counts]
        silent = rng.randint(0 if counts else 1, 2)
        for k in range(1, sum(counts) + silent + 1):
            expected = by_enumeration(counts, correct, silent, k)
            assert maj_at_k(counts, correct, silent, k) == pytest.approx(expected, abs=1e-12)


def test_all_samples_are_one_vote():
    assert maj_at_k([3, 2], [1.0, 0.0], 0, 5) == 1.0
    assert maj_at_k([2, 3], [1.0, 0.0], 0, 5) == 0.0
    assert maj_at_k([2, 2], [1.0, 0.0], 0, 4) == 0.5  # a tie is shared
    assert maj_at_k([1], [1.0], 6, 7) == 1.0  # silence is outvoted by one vote
    assert maj_at_k([], [], 3, 3) == 0.0


def test_one_sample_is_the_share_of_right_ones():
    assert maj_at_k([3, 2, 4], [1.0, 0.0, 1.0], 1, 1) == pytest.approx(0.7)


def test_two_answers_among_hundreds_are_a_hypergeometric_tail():
    right, wrong, k = 160, 140, 101
    ways = sum(math.comb(right, i) * math.comb(wrong, k - i) for i in range(51, k + 1))
    expected = float(Fraction(ways, math.comb(right + wrong, k)))
    assert maj_at_k([right, wrong], [1.0, 0.0], 0, k) == pytest.approx(expected, rel=1e-9)


def test_numbers_of_subsets_that_overflow():
    assert maj_at_k([1500, 1500], [1.0, 0.0], 0, 5) == pytest.approx(0.5)


def test_too_few_samples():
    assert math.isnan(maj_at_k([1, 1], [1.0, 0.0], 0, 3))
