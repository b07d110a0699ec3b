import itertools
import math

import pytest

from verl_msgrpo.all_subgroups import count_terms, most_terms


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
