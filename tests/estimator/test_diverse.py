import itertools
import math

import numpy as np
import pytest

from verl_msgrpo.estimator.diverse import design_size, subgroup_design


def memberships(design, group_size):
    return np.bincount(design.flatten().numpy(), minlength=group_size)


def jaccard(rows):
    """Smallest and mean distance of pairs of rows."""
    distances = [
        1 - len(a & b) / len(a | b) for a, b in itertools.combinations([set(r) for r in rows], 2)
    ]
    return min(distances), sum(distances) / len(distances)


CASES = [
    (8, 2, 8), (8, 4, 8), (8, 6, 8), (8, 7, 8), (8, 8, 8), (8, 3, 5), (7, 3, 8), (9, 8, 8),
    (10, 5, 8), (8, 4, 50), (12, 5, 8), (16, 2, 1), (16, 7, 8), (16, 11, 8), (6, 3, 19),
    (6, 3, 10), (64, 32, 8), (64, 2, 8), (100, 30, 3), (5, 2, 1), (11, 4, 25), (2, 2, 1),
    (16, 8, 128), (16, 4, 910), (16, 12, 1024), (64, 2, 1008), (300, 299, 150),
]  # fmt: skip


@pytest.mark.parametrize(("group_size", "scale", "subgroups"), CASES)
def test_size_cover_balance_and_no_twins(group_size, scale, subgroups):
    design = subgroup_design(group_size, scale, subgroups, 0)
    expected = min(math.comb(group_size, scale), max(subgroups, math.ceil(group_size / scale)))
    assert design.shape == (expected, scale)
    assert design_size(group_size, scale, subgroups) == expected
    number = memberships(design, group_size)
    assert number.min() >= 1
    assert number.max() - number.min() <= 1
    rows = [tuple(row) for row in design.tolist()]
    assert len(set(rows)) == expected
    assert all(list(row) == sorted(set(row)) for row in rows)
    assert 0 <= design.min() <= design.max() < group_size


@pytest.mark.parametrize("group_size", range(2, 13))
def test_exactly_balanced_where_the_numbers_divide(group_size):
    for scale in range(2, group_size + 1):
        step = group_size // math.gcd(group_size, scale)
        if step > math.comb(group_size, scale):
            continue
        number = memberships(subgroup_design(group_size, scale, step, 0), group_size)
        assert number.min() == number.max()


def random_balanced_design(group_size, scale, size, rng):
    """Independent of the package's: random subgroups, then random moves until balanced."""
    rows = [set(rng.choice(group_size, scale, replace=False).tolist()) for _ in range(size)]
    while True:
        number = np.bincount(np.concatenate([list(row) for row in rows]), minlength=group_size)
        if number.max() - number.min() <= 1:
            return rows
        most = rng.choice(np.flatnonzero(number == number.max()))
        least = rng.choice(np.flatnonzero(number == number.min()))
        row = rng.choice([i for i, r in enumerate(rows) if most in r and least not in r])
        rows[row] = rows[row] - {most} | {least}


@pytest.mark.parametrize(
    ("group_size", "scale", "subgroups"),
    [(8, 2, 8), (8, 4, 8), (8, 6, 8), (8, 3, 8), (8, 5, 8), (9, 4, 8), (12, 6, 8), (16, 7, 8),
     (10, 3, 8), (7, 3, 8), (7, 4, 12), (16, 11, 8)],
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, 1])
def test_as_far_apart_as_the_best_of_1000_random_designs(group_size, scale, subgroups, seed):
    rng = np.random.default_rng(1)
    size = design_size(group_size, scale, subgroups)
    best = max(jaccard(random_balanced_design(group_size, scale, size, rng)) for _ in range(1000))
    smallest, mean = jaccard(subgroup_design(group_size, scale, subgroups, seed).tolist())
    assert smallest >= best[0] - 1e-12
    if smallest < best[0] + 1e-12:
        assert mean >= best[1] - 1e-12


def test_pairs_of_all_are_a_perfect_matching():
    design = subgroup_design(16, 2, 1, 0)
    assert sorted(design.flatten().tolist()) == list(range(16))


def test_seeds_differ_and_repeat():
    first = subgroup_design(16, 7, 8, 0)
    subgroup_design.cache_clear()
    assert subgroup_design(16, 7, 8, 0).equal(first)
    assert not subgroup_design(16, 7, 8, 1).equal(first)
