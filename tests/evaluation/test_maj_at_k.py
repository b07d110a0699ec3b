import math
import random
from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest

from verl_msgrpo.evaluation.maj_at_k import maj_at_k


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
