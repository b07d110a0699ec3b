import pytest

from verl_msgrpo import MSGRPOConfig
from verl_msgrpo.estimator.scales import dilated_scales, weighted_scales


@pytest.mark.parametrize(
    ("group_size", "num_scales", "expected"),
    [
        (8, 4, (2, 4, 6, 8)),  # the paper's
        (16, 4, (2, 7, 11, 16)),  # 2, 6.67, 11.33, 16
        (7, 3, (2, 5, 7)),  # 4.5 rounds up
        (8, 1, (8,)),
        (8, 2, (2, 8)),
        (5, 4, (2, 3, 4, 5)),
        (4, 4, (2, 3, 3, 4)),
    ],
)
def test_dilated_scales(group_size, num_scales, expected):
    assert dilated_scales(group_size, num_scales) == expected


def weights(group_size, **settings):
    return dict(weighted_scales(group_size, MSGRPOConfig(**settings)))


def test_every_scale_is_the_default():
    assert weights(5) == {2: 0.25, 3: 0.25, 4: 0.25, 5: 0.25}


def test_scales_above_the_group_become_its_size_and_their_weights_add():
    assert weights(4, scales=[2, 4, 8]) == pytest.approx({2: 1 / 3, 4: 2 / 3})
    assert weights(4, scales=[2, 4, 8], scale_weights=[5, 1, 2]) == pytest.approx(
        {2: 5 / 8, 4: 3 / 8}
    )


def test_smallest_scale_above_the_group_becomes_its_size():
    assert weights(4, min_scale=6) == {4: 1.0}
    assert weights(8, min_scale=6) == pytest.approx({6: 1 / 3, 7: 1 / 3, 8: 1 / 3})


def test_more_scales_than_sizes_are_every_scale():
    assert weights(4, num_scales=4) == weights(4)
    assert weights(8, num_scales=100) == weights(8)


def test_weights_of_dilated_scales_add_where_they_coincide():
    settings = {"num_scales": 4, "scale_weights": [4, 3, 2, 1]}
    assert weights(8, **settings) == pytest.approx({2: 0.4, 4: 0.3, 6: 0.2, 8: 0.1})
    assert weights(4, **settings) == pytest.approx({2: 0.4, 3: 0.5, 4: 0.1})


def test_scales_without_weight_are_left_out():
    assert weights(8, scales=[2, 5, 8], scale_weights=[1, 0, 3]) == {2: 0.25, 8: 0.75}


def test_huge_weights_do_not_overflow():
    assert weights(8, scales=[2, 8], scale_weights=[1e308, 1e308]) == {2: 0.5, 8: 0.5}
