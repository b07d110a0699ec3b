import numpy as np
import pandas as pd
import pytest

from tests.evaluation.files import groups, verl_row, write_rows
from tests.evaluation.test_prompt_rows import data_row
from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.compare import compare
from verl_msgrpo.evaluation.dumps import read_samples
from verl_msgrpo.evaluation.prompt_rows import PromptRows
from verl_msgrpo.evaluation.quantities import Request


@pytest.fixture
def compared(tmp_path):
    def run(first, second, *ks, data=None):
        paths = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
        samples = (
            read_samples(write_rows(path, rows), data)
            for path, rows in zip(paths, (first, second), strict=True)
        )
        return compare(*samples, Request(ks), seed=0)

    return run


def by_quantity(comparison):
    return {d.quantity: d for d in comparison.differences}


def test_prompts_are_paired_whatever_their_order(compared):
    first = groups([1, 0], [0, 0], [1, 1])
    second = groups([1, 1], [1, 0], [1, 1])[::-1]
    result = by_quantity(compared(first, second))
    assert (result["avg@2"].first, result["avg@2"].second) == (0.5, pytest.approx(5 / 6))
    assert result["avg@2"].difference == pytest.approx(1 / 3)
    assert result["pass@2"].difference == pytest.approx(1 / 3)
    assert result["avg@2"].pairs == 3


def test_uids_of_verl_change_and_prompts_do_not(compared):
    first = [verl_row(f"Q{i}", f"old-{i}", 0.0, step=0) for i in range(4)]
    second = [verl_row(f"Q{i}", f"new-{i}", 1.0, step=9) for i in range(1, 6)]
    comparison = compared(first, second)
    assert (comparison.pairs, comparison.only_first, comparison.only_second) == (3, 1, 2)
    assert by_quantity(comparison)["avg@1"].difference == 1.0


def test_groups_of_the_same_prompt_count_as_one(compared):
    first = [verl_row("Q", f"u{i}", score) for i, score in enumerate([1.0, 0.0])]
    second = [verl_row("Q", "u", 1.0)]
    comparison = compared(first, second, 1)
    assert (comparison.pairs, comparison.only_first, comparison.only_second) == (1, 0, 0)
    assert by_quantity(comparison)["avg@n"].first == 0.5


def test_the_data_file_pairs_prompts_of_two_chat_templates(compared, tmp_path):
    pd.DataFrame([data_row(f"Q{i}?", "gold", "ab"[i % 2]) for i in range(4)]).to_parquet(
        tmp_path / "val.parquet"
    )
    first = [verl_row(f"Q{i}?", f"u{i}", 0.0) for i in range(4)]
    second = [verl_row("", f"v{i}", 1.0) | {"input": f"[INST] Q{i}? [/INST]"} for i in range(4)]
    with pytest.raises(UserError, match=r"no prompt is in both .* --data"):
        compared(first, second)
    comparison = compared(first, second, data=PromptRows([tmp_path / "val.parquet"]))
    assert comparison.pairs == 4
    assert [d.source for d in comparison.differences if d.quantity == "avg@1"] == [
        "a",
        "b",
        "(all)",
    ]


def test_the_default_k_fits_the_smaller_groups(compared):
    result = by_quantity(compared(groups([1, 0, 1, 0]), groups([1, 1])))
    assert {"pass@1", "pass@2"} == {name for name in result if name.startswith("pass")}
    with pytest.raises(UserError, match=r"b\.jsonl: --k 4"):
        compared(groups([1, 0, 1, 0]), groups([1, 1]), 4)


def test_the_interval_is_that_of_paired_differences(compared):
    rng = np.random.default_rng(0)
    hard = rng.random(200)
    first, second = ((rng.random((8, 200)) < hard + shift).T.astype(float) for shift in (0, 0.1))
    result = by_quantity(compared(groups(*first.tolist()), groups(*second.tolist()), 1))["avg@8"]
    change = second.mean(axis=1) - first.mean(axis=1)
    half = 1.96 * change.std() / np.sqrt(200)
    assert result.difference == pytest.approx(change.mean())
    assert (result.high - result.low) / 2 == pytest.approx(half, rel=0.1)
    # Prompts differ more than that from each other: unpaired, the interval would be wider.
    unpaired = 1.96 * np.sqrt((first.mean(axis=1).var() + second.mean(axis=1).var()) / 200)
    assert (result.high - result.low) / 2 < 0.6 * unpaired


def test_a_quantity_is_compared_where_both_files_have_it(compared):
    first = groups([1, 0], [1], [0, 0], f1=0.5)
    second = groups([1, 1], [1, 1], [1, 1])
    result = by_quantity(compared(first, second, 2))
    assert result["pass@2"].pairs == 2
    assert result["pass@2"].difference == 0.5
    assert "f1" not in result
