"""Local files, folders and the hub, and what is said of those that cannot be read."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tasks import raw_rows as raw
from tests.tasks.prepared import RAW, prepare, read, refused
from verl_msgrpo.tasks.sources import rows_of

pytest.importorskip("math_verify")


def test_several_files_are_read_one_after_the_other(tmp_path):
    files = [raw.write(tmp_path / f"{n}.jsonl", [raw.medqa(n)]) for n in (3, 1, 2)]
    assert prepare("medqa", tmp_path, "--train", *files, "--validation", "none") == 0
    assert [row["extra_info"]["origin"] for row in read(tmp_path, "train")] == [
        "3.jsonl",
        "1.jsonl",
        "2.jsonl",
    ]


def test_a_folder_has_its_splits(tmp_path):
    for split, rows in zip(("train", "test"), RAW["medqa"], strict=True):
        raw.write(tmp_path / "medqa" / f"phrases_no_exclude_{split}.jsonl", rows)
    folder = tmp_path / "medqa"
    assert prepare("medqa", tmp_path, "--train", folder, "--validation", folder) == 0
    assert len(read(tmp_path, "train")) == 6
    assert len(read(tmp_path, "validation")) == 3


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "raw.jsonl",
            '{"question": "q", "answer": "a"}\nnot json\n',
            "raw.jsonl, line 2: broken JSON",
        ),
        ("raw.jsonl", '{"question"', "raw.jsonl, line 1: broken JSON"),
        ("raw.jsonl", "[1]\n", "raw.jsonl, line 1: not a JSON object"),
        ("raw.jsonl", "", "raw.jsonl: holds no rows"),
        ("raw.json", "[", "raw.json: broken JSON"),
        ("raw.json", "[" * 100_000, "raw.json: broken JSON"),
        ("raw.json", "[]", "raw.json: holds no rows"),
        ("raw.parquet", "PAR1", "raw.parquet: cannot be read"),
        ("raw.jsonl.gz", "PAR1", "raw.jsonl.gz: cannot be read"),
        ("raw.csv", "question,answer\n", "raw.csv: not a file of rows"),
    ],
)
def test_damaged_files_are_named(tmp_path, capsys, name, content, words):
    (tmp_path / name).write_text(content)
    line = refused(capsys, "hotpotqa", tmp_path, "--train", tmp_path / name, "--validation", "none")
    assert words in line


def test_a_damaged_archive_is_named(tmp_path, capsys):
    data = bytearray(gzip.compress(json.dumps(raw.hotpot(0)).encode()))
    data[10:40] = b"\xff" * 30  # the header stays
    (tmp_path / "raw.jsonl.gz").write_bytes(data)
    source = tmp_path / "raw.jsonl.gz"
    line = refused(capsys, "hotpotqa", tmp_path, "--train", source, "--validation", "none")
    assert f"{source}: cannot be read: " in line


@pytest.mark.parametrize("name", ["raw.json", "raw.jsonl"])
def test_a_byte_order_mark_is_passed_over(tmp_path, name):
    rows = [raw.medqa(n) for n in range(2)]
    text = json.dumps(rows) if name == "raw.json" else "\n\n".join(map(json.dumps, rows))
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    found = list(rows_of(str(tmp_path / name)))
    assert [row.fields for row in found] == rows
    places = ["row 1", "row 2"] if name == "raw.json" else ["line 1", "line 3"]
    assert [row.where for row in found] == [f"{tmp_path / name}, {place}" for place in places]


def test_an_empty_parquet_file(tmp_path, capsys):
    schema = pa.schema([("question", pa.string()), ("answer", pa.string())])
    pq.write_table(schema.empty_table(), tmp_path / "raw.parquet")
    line = refused(
        capsys, "hotpotqa", tmp_path, "--train", tmp_path / "raw.parquet", "--validation", "none"
    )
    assert "nothing to write: 0 rows read" in line


# --- The hub --------------------------------------------------------------------------------------


def test_hub_data_sets_are_downloaded_as_files(tmp_path, monkeypatch):
    import datasets
    import huggingface_hub

    local = raw.write(tmp_path / "x.parquet", [raw.hotpot(i) for i in range(3)])
    asked, downloads = [], []

    class Builder:
        def __init__(self, name, config, revision):
            asked.append((name, config, revision))
            files = [f"hf://datasets/{name}@0123abc/{config}/{s}-0.parquet" for s in "ab"]
            self.config = type("Config", (), {"data_files": {"train": files[:1], "dev": files[1:]}})

    def download(name, path, repo_type, revision):
        downloads.append((name, path, repo_type, revision))
        return local

    monkeypatch.setattr(datasets, "load_dataset_builder", Builder)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    sources = ("--train", "hotpotqa/hotpot_qa/distractor", "--validation", "none")
    assert prepare("hotpotqa", tmp_path, *sources) == 0
    assert asked == [("hotpotqa/hotpot_qa", "distractor", None)]
    place = ("hotpotqa/hotpot_qa", "distractor/a-0.parquet", "dataset", "0123abc")
    assert set(downloads) == {place}
    assert len(read(tmp_path, "train")) == 3

    sources = ("--train", "o/n/distractor@v2:dev", "--validation", "none")
    assert prepare("hotpotqa", tmp_path, *sources) == 0
    assert asked[1] == ("o/n", "distractor", "v2")
    assert downloads[-1][:2] == ("o/n", "distractor/b-0.parquet")


def test_livecodebench_releases_and_converted_parquet_are_files_of_the_hub(tmp_path, monkeypatch):
    import huggingface_hub

    downloads = []
    local = raw.write(tmp_path / "lcb.jsonl", [raw.livecodebench(1)])
    monkeypatch.setattr(
        huggingface_hub,
        "hf_hub_download",
        lambda name, path, repo_type, revision: downloads.append((name, path, revision)) or local,
    )
    assert prepare("livecodebench", tmp_path, "--train", "none", "--release", "v2") == 0
    repository = "livecodebench/code_generation_lite"
    assert sorted(set(downloads)) == [
        (repository, "test.jsonl", None),
        (repository, "test2.jsonl", None),
    ]

    local = raw.write(tmp_path / "riddle.parquet", [raw.riddle(1)])
    branch = "datasets/INK-USC/riddle_sense@refs/convert/parquet"
    monkeypatch.setattr(
        huggingface_hub.HfFileSystem,
        "glob",
        lambda self, pattern: [f"{branch}/default/{pattern.split('/')[-2]}/0000.parquet"],
    )
    assert prepare("riddlesense", tmp_path, "--train", "none") == 0
    assert downloads[-1] == (
        "INK-USC/riddle_sense",
        "default/validation/0000.parquet",
        "refs/convert/parquet",
    )


@pytest.mark.parametrize("task", ["hotpotqa", "riddlesense", "livecodebench"])
def test_no_network_is_one_line(tmp_path, task):
    """In a process of its own: the offline mode is read when the libraries are imported."""
    done = subprocess.run(
        [sys.executable, "-m", "verl_msgrpo.cli", "prepare", task, "--out", str(tmp_path)],
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "PATH": "/usr/bin:/bin"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cannot be read" in line
    assert "give local files" in line
    assert list(tmp_path.glob("*.parquet")) == []
