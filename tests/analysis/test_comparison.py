"""A small comparison: fair, paired, and told apart."""

import pytest
import torch

from verl_msgrpo.analysis.comparison import CONTROL, SAME_RATE, StudySettings, compare_methods
from verl_msgrpo.analysis.summary import summarise

SETTINGS = StudySettings(
    grid=tuple(2.0**n for n in range(-1, 5)), steps=6, choice_runs=16, report_runs=40
)


@pytest.fixture(scope="module")
def comparisons():
    return [compare_methods(kind, 1.0, SETTINGS) for kind in ("binary", "heavy")]


def test_rates(comparisons):
    for comparison in comparisons:
        outcomes = comparison.outcomes
        for method, curve in comparison.curves.items():
            assert curve.shape == (2, len(SETTINGS.grid))
            assert curve[0, 0] <= outcomes[method].rate <= curve[0, -1]
        rate = outcomes["GRPO"].rate
        assert outcomes["MS-GRPO exact" + SAME_RATE].rate == rate
        assert 0.6 * rate < outcomes[CONTROL].rate < 0.9 * rate


def test_same_settings_give_the_same_result(comparisons):
    again = compare_methods("binary", 1.0, SETTINGS)
    for name, outcome in comparisons[0].outcomes.items():
        assert again.outcomes[name].rate == outcome.rate
        assert torch.equal(again.outcomes[name].scores.final, outcome.scores.final)
    other = compare_methods("binary", 1.0, SETTINGS._replace(seed=1))
    assert not torch.equal(
        other.outcomes["GRPO"].scores.final, comparisons[0].outcomes["GRPO"].scores.final
    )


def test_table(comparisons):
    rows = {(row["kind"], row["method"]): row for row in summarise(comparisons)}
    assert len(rows) == 3 * 7
    grpo, ours = rows["heavy", "GRPO"], rows["heavy", "MS-GRPO exact"]
    assert grpo["final_diff"] == grpo["final_diff_low"] == grpo["final_diff_high"] == 0
    assert ours["final_diff"] == pytest.approx(ours["final"] - grpo["final"])
    assert ours["final_diff_low"] < ours["final_diff"] < ours["final_diff_high"]
    there = rows["heavy", "MS-GRPO exact" + SAME_RATE]
    assert there["against"] == CONTROL
    assert there["area_diff"] == pytest.approx(there["area"] - rows["heavy", CONTROL]["area"])
    every = rows["all", "Dr. GRPO"]
    per_kind = [rows[kind, "Dr. GRPO"] for kind in ("binary", "heavy")]
    assert every["final"] == pytest.approx(sum(row["final"] for row in per_kind) / 2)
    # Averaging two problems narrows the interval.
    widths = [row["final_diff_high"] - row["final_diff_low"] for row in (*per_kind, every)]
    assert widths[2] < max(widths[:2])
