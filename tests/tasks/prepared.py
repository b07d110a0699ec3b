"""Runs `verl-msgrpo prepare` on made-up rows, and reads what comes out."""

import pyarrow.parquet as pq

from tests.tasks import raw_rows as raw
from verl_msgrpo.cli import main

# task -> (training rows, validation rows)
RAW = {
    "aime24": ([raw.dapo(i) for i in range(5)], [raw.aime(i) for i in range(3)]),
    "riddlesense": ([raw.riddle(i) for i in range(7)], [raw.riddle(i) for i in range(10, 13)]),
    "livecodebench": (
        [raw.eurus(i) for i in range(4)],
        [raw.livecodebench(0), raw.livecodebench(1, functional=True)],
    ),
    "medqa": ([raw.medqa(i) for i in range(6)], [raw.medqa(i) for i in range(20, 23)]),
    "hotpotqa": ([raw.hotpot(i) for i in range(6)], [raw.hotpot(i) for i in range(30, 32)]),
}


def prepare(task, out, *arguments):
    return main(["prepare", task, "--out", str(out), *map(str, arguments)])


def prepare_rows(task, tmp_path, train=(), validation=(), *arguments):
    """Prepares rows given here; the rows that come out, by split."""
    splits = {"train": train, "validation": validation}
    for split, rows in splits.items():
        source = raw.write(tmp_path / f"raw_{split}.jsonl", rows) if rows else "none"
        arguments = (*arguments, f"--{split}", source)
    assert prepare(task, tmp_path / "out", *arguments) == 0
    return {split: read(tmp_path / "out", split) for split, rows in splits.items() if rows}


def read(folder, split):
    return pq.read_table(folder / f"{split}.parquet").to_pylist()


def prompt(row):
    (message,) = row["prompt"]
    assert message["role"] == "user"
    return message["content"]


def refused(capsys, *arguments):
    """The one line of a refusal."""
    assert prepare(*arguments) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    return line
