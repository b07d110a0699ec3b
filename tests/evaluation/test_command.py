import csv

import pandas as pd
import pytest

from tests.evaluation.files import groups, verl_row, write_rows
from tests.evaluation.test_prompt_rows import data_row
from verl_msgrpo.cli import main


@pytest.fixture
def dump(tmp_path):
    rows = [
        verl_row(f"Q{p}?", f"u{p}", float(s <= p), session=s, acc=float(s <= p), pred=str(s <= p))
        for p in range(4)
        for s in range(4)
    ]
    pd.DataFrame(
        [data_row(f"Q{p}?", "gold", ("task $a_b$", "b")[p % 2]) for p in range(4)]
    ).to_parquet(tmp_path / "val.parquet")
    return write_rows(tmp_path / "10.jsonl", rows)


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_table_csv_and_plot(dump, tmp_path, capsys):
    table, plot = tmp_path / "t.csv", tmp_path / "p.png"
    options = ["--data", str(tmp_path / "val.parquet"), "--k", "4, 1,2"]
    assert main(["evaluate", str(dump), *options, "--csv", str(table), "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert f"{dump}: step 10, 16 rows, 16 samples, 4 prompts\n" in out
    assert "b: 2 prompts, 8 samples, result: acc\n" in out
    rows = {(r["data_source"], r["quantity"]): r for r in read_csv(table)}
    # Prompt p has p + 1 right answers of 4.
    assert float(rows["b", "avg@4"]["value"]) == 0.75
    assert float(rows["task $a_b$", "pass@2"]["value"]) == pytest.approx((0.5 + 1) / 2)
    assert float(rows["(all)", "maj@4"]["value"]) == pytest.approx((0 + 0.5 + 1 + 1) / 4)
    assert rows["(all)", "maj@4"]["prompts"] == "4"
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_compare(dump, tmp_path, capsys):
    better = write_rows(
        tmp_path / "20.jsonl",
        [verl_row(f"Q{p}?", f"v{p}", 1.0, step=20, acc=1.0) for p in range(5)],
    )
    table, plot = tmp_path / "t.csv", tmp_path / "p.png"
    command = ["evaluate", "--compare", str(dump), str(better)]
    assert main([*command, "--csv", str(table), "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "4 prompts in both, 0 only in A, 1 only in B" in out
    (row,) = (row for row in read_csv(table) if row["quantity"] == "pass@1")
    assert (float(row["a"]), float(row["b"])) == (0.625, 1.0)
    assert float(row["low"]) < float(row["difference"]) == 0.375 < float(row["high"])
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_one_prompt_has_no_interval(tmp_path, capsys):
    path = write_rows(tmp_path / "rows.jsonl", groups([1, 0]))
    table = tmp_path / "t.csv"
    assert main(["evaluate", str(path), "--csv", str(table)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines() if "avg@2" in line] == [
        ["avg@2", "0.5000", "-", "1"]
    ]
    assert read_csv(table)[0]["low"] == ""


def test_names_from_a_file_cannot_drive_the_terminal(tmp_path, capsys):
    rows = groups([1], [0], data_source="\x1b[2J\n" + "x" * 200)
    assert main(["evaluate", str(write_rows(tmp_path / "rows.jsonl", rows))]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "x" * 60 not in out


def test_short_groups_and_missing_results_are_said(tmp_path, capsys):
    path = write_rows(tmp_path / "rows.jsonl", groups([1, None], [1]))
    assert main(["evaluate", str(path)]) == 0
    out = capsys.readouterr().out
    assert "1 groups with fewer than 2 samples, 1 samples without a result (counted as 0)" in out
    assert "leave out groups below k" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one file, or two with --compare"),
        (["FILE", "--compare", "FILE", "FILE"], "name one file, or two with --compare"),
        (
            ["FILE", "--k", "1,x"],
            "--k: allowed is a list of integers >= 1 such as 1,4,8, got '1,x'",
        ),
        (["FILE", "--k", ","], "--k: allowed is a list of integers >= 1 such as 1,4,8, got ','"),
        (["FILE", "--k", "0"], "--k: allowed is a list of integers >= 1 such as 1,4,8, got '0'"),
        (["FILE", "--k", "5"], "--k 5, but no prompt has more than 4 samples"),
        (["FILE", "--metric", "em"], "no numbers under em"),
        (["FILE", "--threshold", "nan"], "--threshold: allowed is a finite number, got 'nan'"),
        (["FILE", "--seed", "-1"], "--seed: allowed is an integer >= 0, got '-1'"),
        (["FILE", "--csv", "missing/folder/t.csv"], "cannot be written"),
        (["FILE", "--plot", "missing/folder/p.png"], "cannot be written"),
        (["FILE", "--plot", "p.unknown"], "cannot be written"),
        (["FILE", "--data", "missing.parquet"], "not a parquet file that can be read"),
        (["missing.jsonl"], "No such file"),
    ],
)
def test_bad_input_is_one_line(dump, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    arguments = [str(dump) if argument == "FILE" else argument for argument in arguments]
    assert main(["evaluate", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("verl-msgrpo evaluate: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_plot_without_matplotlib(dump, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    assert main(["evaluate", str(dump), "--plot", "p.png"]) == 2
    assert "--plot needs matplotlib" in capsys.readouterr().err
