"""Curves, phases and final numbers, against values worked out by hand."""

import pytest

from tests.report.files import write_run
from verl_msgrpo.report.curves import curve, panels, phase_seconds
from verl_msgrpo.report.final_numbers import final_value
from verl_msgrpo.report.methods import method_of
from verl_msgrpo.report.runs import read_run


def test_curve_takes_the_steps_that_all_seeds_have():
    found = curve([{1: 1.0, 2: 2.0, 3: 9.0}, {1: 3.0, 2: 2.0}, {0: 7.0, 1: 5.0, 2: 5.0}])
    assert found.steps.tolist() == [1, 2]
    assert found.mean.tolist() == [3.0, 3.0]
    assert found.low.tolist() == [1.0, 2.0]
    assert found.high.tolist() == [5.0, 5.0]


def test_curve_of_seeds_without_a_common_step_is_empty():
    assert len(curve([{1: 1.0}, {2: 1.0}]).mean) == 0


def test_final_value_is_a_validations_last_and_the_mean_of_ten_steps_else():
    series = {step: float(step) for step in range(1, 21)}
    assert final_value("val-core/task/acc/mean@1", series) == 20.0
    assert final_value("critic/score/mean", series) == pytest.approx(15.5)


def test_seconds_of_phases_per_step_of_training(tmp_path):
    """Parts of phases are not phases; validation is spread over all steps and is not in a step."""
    timings = {
        1: {"timing_s/step": 10.0, "timing_s/gen": 6.0, "timing_s/gen/slowest": 5.0},
        2: {"timing_s/step": 14.0, "timing_s/gen": 8.0, "timing_s/adv": 2.0},
    }
    timings[2]["timing_s/testing"] = 4.0
    run = read_run(write_run(tmp_path / "a", timings), lambda name: True)
    # Of 12 seconds per step, 7 are gen and 1 is adv.
    expected = {"gen": 7.0, "testing": 2.0, "adv": 1.0, "other": 4.0}
    assert phase_seconds(method_of("m", [run])) == expected
    without = read_run(write_run(tmp_path / "b", {1: {"timing_s/gen": 1.0}}), lambda name: True)
    assert phase_seconds(method_of("m", [without])) == {}


@pytest.mark.parametrize(
    ("name", "title", "says"),
    [
        ("a/acc/mean@1", "a: acc mean@1", "mean over 1 sample per prompt"),
        ("hub/set/acc/mean@16", "hub/set: acc mean@16", "mean over 16 samples per prompt"),
        ("a/acc/best@4/mean", "a: acc best@4", "best of 4 samples, drawn with replacement"),
        ("a/acc/maj@4/mean", "a: acc maj@4", "most frequent answer of 4 samples"),
        ("a/acc/maj@4/std", "a: acc maj@4 std", "its standard deviation over the draws"),
        ("other", "val-core/other", "on the validation data"),
    ],
)
def test_what_a_validation_metric_says(tmp_path, name, title, says):
    run = read_run(write_run(tmp_path / "a", {1: {f"val-core/{name}": 0.5}}), lambda name: True)
    (panel,) = panels([method_of("m", [run])])
    assert panel.title == title
    assert says in panel.says


def test_verl_compares_lengths_with_the_longest_response_and_not_with_the_limit():
    """What the panel says of response_length/clip_ratio: 0.5 here, whatever the limit is."""
    metric_utils = pytest.importorskip("verl.trainer.ppo.metric_utils")
    import torch
    from verl import DataProto

    lengths = torch.tensor([3.0, 2.0, 3.0, 1.0])
    mask = (torch.arange(3) < lengths[:, None]).float()
    tokens = dict.fromkeys(("responses", "response_mask", "advantages", "returns"), mask)
    scores = dict.fromkeys(("token_level_scores", "token_level_rewards"), mask)
    batch = DataProto.from_dict(
        {
            **tokens,
            **scores,
            "prompts": torch.ones(4, 2),
            "prompt_length": torch.full((4,), 2.0),
            "response_length": lengths,
        }
    )
    metrics = metric_utils.compute_data_metrics(batch, use_critic=False)
    assert metrics["response_length/max"] == 3
    assert metrics["response_length/clip_ratio"] == 0.5
