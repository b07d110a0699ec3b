import itertools
import math
from fractions import Fraction

import pytest
import torch

from verl_msgrpo.estimator.advantages import advantages_of_values
from verl_msgrpo.estimator.exact import advantages_over_table, count_terms, most_terms, term_table
from verl_msgrpo.estimator.exact_tiles import advantages_over_tiles, term_tiles
from verl_msgrpo.estimator.reference import reference_advantages


def as_derived(values, counts, scale_weights, epsilon):
    """A_v by the two forms that the docstring of exact.py derives, symbol by symbol."""
    size, number = sum(counts), len(counts)
    with_means, with_gaps = [0.0] * number, [0.0] * number
    for k in itertools.product(*[range(c + 1) for c in counts]):
        tau = sum(k)
        if tau not in scale_weights or sum(k_v > 0 for k_v in k) < 2:
            continue
        ways = math.prod(math.comb(c, k_u) for c, k_u in zip(counts, k, strict=True))
        p = scale_weights[tau] * size / tau * ways / math.comb(size, tau)
        m = sum(k_u * x for k_u, x in zip(k, values, strict=True)) / tau
        squares = sum(k_u * (x - m) ** 2 for k_u, x in zip(k, values, strict=True))
        std = math.sqrt(squares / (tau - 1))
        q = sum(k[u] * k[v] * (values[u] - values[v]) ** 2 for u in range(number) for v in range(u))
        assert tau * (tau - 1) * std**2 == pytest.approx(q)
        root = math.sqrt(tau * (tau - 1))
        for v in range(number):
            with_means[v] += p * k[v] * (values[v] - m) / (std + epsilon) / counts[v]
            gaps = sum(k[u] * (values[v] - values[u]) for u in range(number))
            assert tau * (values[v] - m) == pytest.approx(gaps)
            weight = (p / tau) * root / (math.sqrt(q) + epsilon * root)
            with_gaps[v] += weight * k[v] * gaps / counts[v]
    return with_means, with_gaps


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (3, 2), (2, 2, 1), (1, 1, 1, 1), (4, 1, 2)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_the_derivation_is_the_definition(counts, epsilon):
    """The formulas as written in exact.py, the reference, and what is computed: all the same."""
    size = sum(counts)
    values = torch.rand(len(counts), dtype=torch.float64, generator=torch.manual_seed(1)).tolist()
    taus = [tau for tau in (2, 3, 5, size) if tau <= size]
    weights = {tau: 1 / len(set(taus)) for tau in taus}
    with_means, with_gaps = as_derived(values, counts, weights, epsilon)
    group = [Fraction(x) for x, c in zip(values, counts, strict=True) for _ in range(c)]
    of_members = reference_advantages(group, sorted(weights), epsilon=epsilon)
    first = [sum(counts[:v]) for v in range(len(counts))]
    expected = pytest.approx([of_members[i] for i in first], rel=1e-12, abs=1e-14)
    assert with_means == expected
    assert with_gaps == expected
    scales = tuple(sorted(weights.items()))
    column = torch.full((1,), epsilon, dtype=torch.float64)
    row = torch.tensor([values], dtype=torch.float64)
    assert advantages_of_values(row, counts, scales, column)[0].tolist() == expected


@pytest.mark.parametrize("counts", [(1, 1), (3, 2), (2, 2, 1), (1, 1, 1, 1, 1), (4, 1, 1, 1), (5,)])
@pytest.mark.parametrize("scales", [(2,), (2, 3, 4, 5), (3, 5)])
def test_count_terms(counts, scales):
    scales = tuple(scale for scale in scales if scale <= sum(counts))
    expected = sum(
        sum(k) in scales and sum(x > 0 for x in k) > 1
        for k in itertools.product(*[range(c + 1) for c in counts])
    )
    assert count_terms(counts, scales) == expected


def test_count_terms_of_large_groups():
    assert count_terms((1,) * 16, tuple(range(2, 17))) == 2**16 - 17
    assert count_terms((32, 32), tuple(range(2, 65))) == 33 * 33 - 1 - 2 * 32
    assert count_terms((1,) * 64, (64,)) == 1
    assert count_terms((1,) * 64, (2, 64)) == math.comb(64, 2) + 1
    assert count_terms((1,) * 2000, tuple(range(2, 2001))) == 2**53


def test_most_terms_bounds_the_memory():
    assert most_terms(22) == 2**22
    assert most_terms(1024) == 2**17
    assert most_terms(10**12) == 1


@pytest.mark.parametrize("counts", [(1, 1), (32, 32), (5, 2, 1), (1,) * 8, (2,) * 6])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_table_and_tiles_agree(counts, epsilon):
    size = sum(counts)
    scales = tuple((scale, 1 / (size - 1)) for scale in range(2, size + 1))
    values = torch.rand(5, len(counts), dtype=torch.float64, generator=torch.manual_seed(3))
    epsilons = torch.full((5,), epsilon, dtype=torch.float64)
    table = advantages_over_table(values, term_table(counts, scales), epsilons)
    tiles = advantages_over_tiles(values, term_tiles(counts, scales), epsilons)
    assert torch.allclose(table, tiles, rtol=1e-12, atol=1e-14)


def test_gaps_whose_squares_underflow_stay_finite():
    values = torch.tensor([[0.0, 1e-200, 1.0]], dtype=torch.float64)
    scales = ((2, 0.5), (3, 0.5))
    none = torch.zeros(1, dtype=torch.float64)
    for found in (
        advantages_over_table(values, term_table((1, 1, 1), scales), none),
        advantages_over_tiles(values, term_tiles((1, 1, 1), scales), none),
    ):
        assert found.isfinite().all()
