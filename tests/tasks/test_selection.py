"""Which rows are written: each problem once, none of the validation, as many as asked for."""

import pytest

from tests.tasks import raw_rows as raw
from tests.tasks.prepared import prepare_rows

pytest.importorskip("math_verify")


def test_dapo_repeats_each_problem(tmp_path, capsys):
    rows = [raw.dapo(i) for _ in range(4) for i in range(3)] + [raw.dapo(1, answer="5")]
    prepared = prepare_rows("aime24", tmp_path, rows)["train"]
    assert [row["reward_model"]["ground_truth"] for row in prepared] == ["0", "6", "12"]
    printed = capsys.readouterr().out
    assert "13 rows read, 3 written" in printed
    assert "10 repeated (1 with an answer other than the one kept)" in printed


def test_training_rows_of_the_validation_are_left_out(tmp_path, capsys):
    """Also where blanks, capitals or dollars differ."""
    validation = [raw.aime(1)]
    train = [raw.dapo(0), raw.dapo(0, validation[0]["problem"].replace("$", " ").upper())]
    prepared = prepare_rows("aime24", tmp_path, train, validation)
    assert [len(prepared[split]) for split in ("train", "validation")] == [1, 1]
    assert "2 rows read, 1 written, 0 repeated, 1 also in validation" in capsys.readouterr().out


def test_signs_and_digits_tell_problems_apart(tmp_path):
    rows = [raw.dapo(0, text) for text in ("$x+1$", "$x-1$", "$x+11$", "$x^2$", "$x_2$")]
    assert len(prepare_rows("aime24", tmp_path, rows)["train"]) == 5


def test_limit_counts_what_is_written(tmp_path):
    rows = [raw.dapo(i // 2) for i in range(20)]
    prepared = prepare_rows("aime24", tmp_path, rows, (), "--limit", "4")["train"]
    assert [row["reward_model"]["ground_truth"] for row in prepared] == ["0", "6", "12", "18"]


def test_seed_samples_in_order(tmp_path):
    rows = [raw.dapo(i) for i in range(50)]

    def sample(seed, name):
        prepared = prepare_rows(
            "aime24", tmp_path / name, rows, (), "--limit", "9", "--seed", str(seed)
        )
        return [int(row["reward_model"]["ground_truth"]) for row in prepared["train"]]

    first = sample(1, "a")
    assert first == sorted(set(first))
    assert len(first) == 9
    assert first == sample(1, "b")
    assert first != sample(2, "c")


def test_livecodebench_contest_dates(tmp_path, capsys):
    rows = [raw.livecodebench(i) for i in range(6)]
    window = ("--contest-from", "2024-02-03", "--contest-to", "2024-04-03")
    # Training takes the other contests: what is validated on is left out of it.
    prepared = prepare_rows("livecodebench", tmp_path, rows, rows, *window)
    dates = {s: [r["extra_info"]["date"][5:7] for r in rows] for s, rows in prepared.items()}
    assert dates == {"validation": ["02", "03", "04"], "train": ["01", "05", "06"]}
    printed = capsys.readouterr().out
    assert "3 outside the contest dates" in printed
    assert "3 also in validation" in printed


def test_bad_rows_can_be_left_out(tmp_path, capsys):
    rows = [raw.hotpot(0, answer=None), raw.hotpot(1), raw.hotpot(2, answer="a</answer>b")]
    prepared = prepare_rows("hotpotqa", tmp_path, rows, (), "--skip-bad-rows")["train"]
    assert [row["extra_info"]["index"] for row in prepared] == [0]
    assert "2 bad, left out (the first: " in capsys.readouterr().out
