import itertools
import math

import pytest
import torch

from verl_msgrpo.all_subgroups import count_terms, most_terms
from verl_msgrpo.term_table import advantages_over_table, term_table
from verl_msgrpo.term_tiles import advantages_over_tiles, term_tiles


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
