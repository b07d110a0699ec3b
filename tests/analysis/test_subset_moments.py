"""Means over all subsets, against going through them."""

from itertools import combinations

import pytest
import torch

from verl_msgrpo.analysis.subset_moments import SubsetMoments

VALUES = [0.3, -1.2, 2.0, 0.7, -0.4, 1.1]


@pytest.mark.parametrize("size", range(7))
@pytest.mark.parametrize(("sums", "squares"), [(0, 0), (1, 0), (2, 1), (5, 0), (1, 2), (0, 2)])
def test_against_enumeration(size, sums, squares):
    subsets = list(combinations(VALUES, size))
    total = sum(sum(s) ** sums * sum(x * x for x in s) ** squares for s in subsets)
    powers = torch.tensor([[x**e for x in VALUES] for e in range(6)], dtype=torch.float64)
    found = SubsetMoments(powers.sum(dim=1), len(VALUES)).mean(size, sums, squares)
    assert found.item() == pytest.approx(total / len(subsets), rel=1e-12, abs=1e-12)
