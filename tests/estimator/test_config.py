import dataclasses

import numpy as np
import pytest
import torch

from verl_msgrpo import MSGRPOConfig


def test_defaults():
    config = MSGRPOConfig()
    assert (config.subgroups, config.subgroups_per_scale, config.epsilon) == ("auto", 8, 1e-6)
    assert config.scales is config.num_scales is config.normalize_by_std is None


def test_frozen_and_hashable():
    config = MSGRPOConfig(scales=[2, 4], scale_weights=[1, 2])
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1
    assert config == MSGRPOConfig(scales=(2, 4), scale_weights=(1.0, 2.0))
    assert hash(config) == hash(MSGRPOConfig(scales=(2, 4), scale_weights=(1.0, 2.0)))


@pytest.mark.parametrize("got", ["[" * 100_000, 10**5000], ids=["deep", "long"])
def test_errors_of_values_that_cannot_be_shown_are_one_line(got):
    with pytest.raises(ValueError, match=r"^ms_grpo\.scales: allowed is a list of") as error:
        MSGRPOConfig.from_mapping({"scales": got})
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"scales": [2, 1]}, ">= 2"),
        ({"scales": []}, "list"),
        ({"scales": 4}, "list"),
        ({"scales": np.array(4)}, "list"),
        ({"num_scales": np.array([1, 2])}, ">= 1"),
        ({"num_scales": torch.tensor(2.5)}, ">= 1"),
        ({"subgroups": np.array(["all", "auto"])}, "all, diverse, auto"),
        ({"scales": [2.5]}, "integer"),
        ({"scales": [True, 2]}, "integer"),
        ({"num_scales": 0}, ">= 1"),
        ({"num_scales": True}, "integer"),
        ({"num_scales": "four"}, "integer"),
        ({"num_scales": 3, "scales": [2]}, "null"),
        ({"min_scale": 1}, ">= 2"),
        ({"min_scale": 3, "scales": [4]}, "2"),
        ({"scale_weights": [1.0]}, "null"),
        ({"scale_weights": [1.0], "scales": [2, 4]}, "2 numbers"),
        ({"scale_weights": [1.0, -1.0], "scales": [2, 4]}, ">= 0"),
        ({"scale_weights": [0.0, 0.0], "scales": [2, 4]}, "not all 0"),
        ({"scale_weights": [1.0, float("nan")], "num_scales": 2}, "finite"),
        ({"subgroups": "some"}, "all, diverse, auto"),
        ({"subgroups": ["all"]}, "all, diverse, auto"),
        ({"subgroups_per_scale": 0}, "from 1 to 1024"),
        ({"normalize_by_std": 1}, "true, false or null"),
        ({"normalize_by_std": "yes"}, "true, false or null"),
        ({"epsilon": -1e-6}, ">= 0"),
        ({"epsilon": float("inf")}, "finite"),
        ({"epsilon": 10**400}, "finite"),
        ({"seed": -1}, ">= 0"),
        ({"max_terms": 0}, "from 1 to"),
        ({"max_terms": 2**60}, "from 1 to"),
        ({"preset": "papers"}, "paper"),
    ],
)
def test_errors_name_the_field_and_what_is_allowed(settings, allowed):
    for build in (lambda: MSGRPOConfig(**settings), lambda: MSGRPOConfig.from_mapping(settings)):
        with pytest.raises(ValueError, match=f"ms_grpo.{next(iter(settings))}: ") as error:
            build()
        assert allowed in str(error.value)
        assert "\n" not in str(error.value)


def test_unknown_names_are_refused_with_those_that_are_allowed():
    with pytest.raises(ValueError, match=r"ms_grpo\.num_scale: unknown; .*num_scales, .*preset"):
        MSGRPOConfig.from_mapping({"num_scale": 4})
    with pytest.raises(ValueError, match="mapping"):
        MSGRPOConfig.from_mapping([("num_scales", 4)])


@pytest.mark.parametrize("name", ["a\nb", "x" * 10_000, 4, ("a", "b")])
def test_unknown_names_are_shown_in_one_line(name):
    with pytest.raises(ValueError, match=r"^ms_grpo\..*: unknown; allowed are scales") as error:
        MSGRPOConfig.from_mapping({name: 4})
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_preset_of_the_paper():
    config = MSGRPOConfig(preset="paper")
    assert (config.num_scales, config.subgroups_per_scale, config.subgroups) == (4, 8, "diverse")


def test_given_fields_win_over_the_preset():
    assert MSGRPOConfig(preset="paper", num_scales=2).num_scales == 2
    assert MSGRPOConfig(preset="paper", subgroups="auto").subgroups == "auto"
    assert MSGRPOConfig(preset="paper", subgroups_per_scale=5).subgroups_per_scale == 5
    listed = MSGRPOConfig(preset="paper", scales=[2, 8])
    assert (listed.scales, listed.num_scales, listed.subgroups) == ((2, 8), None, "diverse")


def test_replace_keeps_what_the_preset_set():
    config = dataclasses.replace(MSGRPOConfig(preset="paper", seed=3), normalize_by_std=False)
    assert (config.num_scales, config.subgroups, config.seed) == (4, "diverse", 3)


def test_from_mapping_takes_numbers_as_text_and_null():
    config = MSGRPOConfig.from_mapping(
        {
            "scales": "[2, 4]",
            "scale_weights": ["1", 2],
            "epsilon": "1e-4",
            "seed": "7",
            "max_terms": 100.0,
            "normalize_by_std": "False",
            "subgroups": "all",
            "num_scales": "null",
            "preset": None,
        }
    )
    assert config == MSGRPOConfig(
        scales=(2, 4),
        scale_weights=(1.0, 2.0),
        epsilon=1e-4,
        seed=7,
        max_terms=100,
        normalize_by_std=False,
        subgroups="all",
    )


def test_from_mapping_of_nothing_is_the_default():
    assert MSGRPOConfig.from_mapping(None) == MSGRPOConfig.from_mapping({}) == MSGRPOConfig()


def test_numpy_numbers_are_numbers():
    config = MSGRPOConfig(num_scales=np.int64(3), epsilon=np.float32(0.5))
    assert (config.num_scales, config.epsilon) == (3, 0.5)
    assert type(config.num_scales) is int
