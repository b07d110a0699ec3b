"""A small comparison: fair, paired, and told apart."""

import pytest
import torch

from verl_msgrpo.analysis.comparison import (
    CONTROL,
    SAME_RATE,
    StudySettings,
    compare_methods,
    summarise,
)

SETTINGS = StudySettings(
    grid=tuple(2.0**n for n in range(-1, 5)), steps=6, choice_runs=16, report_runs=40
)


@pytest.fixture(scope="module")
def studies():
    return [compare_methods(kind, 1.0, SETTINGS) for kind in ("binary", "heavy")]


def test_rates(studies):
    for study in studies:
        results = study.results
        for method, curve in study.curves.items():
            assert curve.shape == (2, len(SETTINGS.grid))
            assert curve[0, 0] <= results[method].rate <= curve[0, -1]
        rate = results["GRPO"].rate
        assert results["MS-GRPO exact" + SAME_RATE].rate == rate
        assert 0.6 * rate < results[CONTROL].rate < 0.9 * rate


def test_same_settings_give_the_same_result(studies):
    again = compare_methods("binary", 1.0, SETTINGS)
    for name, result in studies[0].results.items():
        assert again.results[name].rate == result.rate
        assert torch.equal(again.results[name].scores.final, result.scores.final)
    other = compare_methods("binary", 1.0, SETTINGS._replace(seed=1))
    assert not torch.equal(
        other.results["GRPO"].scores.final, studies[0].results["GRPO"].scores.final
    )


def test_table(studies):
    rows = {(row["kind"], row["method"]): row for row in summarise(studies)}
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
