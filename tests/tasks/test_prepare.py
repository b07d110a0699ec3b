"""`verl-msgrpo prepare`: from rows in the public schemas to rows that verl trains on."""

import pyarrow.parquet as pq
import pytest

from tests.tasks import raw_rows as raw
from tests.tasks.prepared import RAW, prepare, prepare_rows, prompt, read, refused
from verl_msgrpo.cli import main
from verl_msgrpo.tasks.check_data import check_files
from verl_msgrpo.tasks.registry import TASKS
from verl_msgrpo.tasks.rows import SCHEMA

pytest.importorskip("math_verify")

DATA_SOURCES = {  # training, validation
    "aime24": ("BytedTsinghua-SIA/DAPO-Math-17k", "HuggingFaceH4/aime_2024"),
    "riddlesense": ("INK-USC/riddle_sense",) * 2,
    "livecodebench": ("livecodebench/code_generation_lite",) * 2,
    "medqa": ("GBaker/MedQA-USMLE-4-options",) * 2,
    "hotpotqa": ("hotpotqa/hotpot_qa",) * 2,
}


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
@pytest.mark.parametrize("task", TASKS)
def test_every_file_passes_the_check(tmp_path, task, suffix, capsys):
    files = [
        raw.write(tmp_path / f"raw_{split}{suffix}", rows)
        for split, rows in zip(("train", "validation"), RAW[task], strict=True)
    ]
    assert prepare(task, tmp_path, "--train", files[0], "--validation", files[1]) == 0
    printed = capsys.readouterr().out
    assert '"data_source"' in printed  # the sample
    for split, rows, source in zip(
        ("train", "validation"), RAW[task], DATA_SOURCES[task], strict=True
    ):
        assert f"{len(rows)} rows read, {len(rows)} written" in printed
        path = tmp_path / f"{split}.parquet"
        assert pq.read_schema(path).equals(SCHEMA)
        prepared = read(tmp_path, split)
        assert [row["extra_info"]["index"] for row in prepared] == list(range(len(rows)))
        assert {row["data_source"] for row in prepared} == {source}
        agent = "search_tool_agent" if task == "hotpotqa" else "single_turn_agent"
        assert {row["agent_name"] for row in prepared} == {agent}
        for row in prepared:
            assert None not in row["extra_info"].values()
            assert row["extra_info"]["split"] == split
            assert row["extra_info"]["origin"]
    assert (
        main(["check-data", *(str(tmp_path / f"{s}.parquet") for s in ("train", "validation"))])
        == 0
    )
    assert "0 errors, 0 warnings" in capsys.readouterr().out


def test_files_of_all_tasks_are_trained_on_together(tmp_path):
    """As verl's RLHFDataset reads and joins them, and as our check sees them."""
    datasets = pytest.importorskip("datasets")
    paths = []
    for task, (train, validation) in RAW.items():
        prepare_rows(task, tmp_path / task, train, validation)
        paths += [tmp_path / task / "out" / f"{s}.parquet" for s in ("train", "validation")]
    parts = [
        datasets.load_dataset("parquet", data_files=str(path), cache_dir=str(tmp_path / "cache"))[
            "train"
        ]
        for path in paths
    ]
    joined = datasets.concatenate_datasets(parts)
    assert len(joined) == sum(len(rows) for pair in RAW.values() for rows in pair)
    assert all(row["extra_info"] and row["agent_name"] for row in joined)
    assert check_files(paths, needs_agent=True).errors == []


def test_the_same_input_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        prepare_rows("medqa", tmp_path / name, *RAW["medqa"])
    for split in ("train", "validation"):
        one, other = (tmp_path / n / "out" / f"{split}.parquet" for n in ("a", "b"))
        assert one.read_bytes() == other.read_bytes()


def test_prompt_template(tmp_path):
    template = tmp_path / "prompt.txt"
    template.write_text("Say \\boxed{} or {nothing}: {problem}\n")
    (row,) = prepare_rows(
        "hotpotqa", tmp_path, [raw.hotpot(1)], (), "--prompt-template", str(template)
    )["train"]
    assert prompt(row) == f"Say \\boxed{{}} or {{nothing}}: {raw.hotpot(1)['question'].strip()}"


def test_search_r1_agent_has_its_own_protocol(tmp_path):
    (row,) = prepare_rows(
        "hotpotqa", tmp_path, [raw.hotpot(5)], (), "--agent-loop", "search_r1_agent"
    )["train"]
    assert row["agent_name"] == "search_r1_agent"
    assert "<search>" in prompt(row)
    assert "<information>" in prompt(row)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hotpotqa", "--train", "missing.parquet"), "missing.parquet: there is no such file"),
        (("hotpotqa", "--train", "no such thing"), "neither a file or folder that exists nor"),
        (("hotpotqa", "--train", "hf://datasets/x"), "must be hf://datasets/owner/name"),
        (("hotpotqa", "--train", "none"), "nothing to write"),
        (("hotpotqa", "--release", "v1"), "--release and --contest-from/-to are for livecodebench"),
        (("medqa", "--agent-loop", "search_r1_agent"), "--agent-loop is for hotpotqa"),
        (("medqa", "--seed", "1"), "--seed chooses the rows of --limit"),
        (("medqa", "--prompt-template", "/nonexistent"), "the prompt template cannot be read"),
        (("livecodebench", "--release", "v1"), "--release chooses among the default files"),
    ],
)
def test_arguments_that_do_not_fit(tmp_path, capsys, arguments, words):
    task, *others = arguments
    assert words in refused(capsys, task, tmp_path, "--validation", "none", *others)


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "many"])
def test_a_limit_that_is_not_allowed(tmp_path, capsys, limit):
    with pytest.raises(SystemExit):
        prepare("medqa", tmp_path, "--limit", limit)
    assert f"--limit: allowed is an integer >= 1, got '{limit}'" in capsys.readouterr().err


def test_a_template_without_the_problem(tmp_path, capsys):
    template = tmp_path / "prompt.txt"
    template.write_text("{question}")
    line = refused(capsys, "medqa", tmp_path, "--prompt-template", template)
    assert "prompt.txt: the prompt template lacks {problem}" in line


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    source = raw.write(tmp_path / "raw.jsonl", [raw.medqa(1)])
    line = refused(capsys, "medqa", tmp_path / "out", "--train", source, "--validation", "none")
    assert "cannot be written" in line
