"""`verl-msgrpo prepare`: from rows in the public schemas to rows that verl trains on."""

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tasks import raw_rows as raw
from verl_msgrpo.cli import main
from verl_msgrpo.rewards.ground_truth import accepted_answers
from verl_msgrpo.tasks.check_data import check_files
from verl_msgrpo.tasks.registry import TASKS
from verl_msgrpo.tasks.rows import SCHEMA

pytest.importorskip("math_verify")

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
DATA_SOURCES = {  # training, validation
    "aime24": ("BytedTsinghua-SIA/DAPO-Math-17k", "HuggingFaceH4/aime_2024"),
    "riddlesense": ("INK-USC/riddle_sense",) * 2,
    "livecodebench": ("livecodebench/code_generation_lite",) * 2,
    "medqa": ("GBaker/MedQA-USMLE-4-options",) * 2,
    "hotpotqa": ("hotpotqa/hotpot_qa",) * 2,
}
REWARDS = {
    "aime24": ("math_answer", "So \\boxed{%s}."),
    "riddlesense": ("multiple_choice", "So \\boxed{%s}."),
    "medqa": ("multiple_choice", "So \\boxed{%s}."),
    "hotpotqa": ("search_qa", "<answer>%s</answer>"),
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


def reward_of(task):
    name, form = REWARDS[task]
    return importlib.import_module(f"verl_msgrpo.rewards.{name}").compute_score, form


# --- Rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
@pytest.mark.parametrize("task", TASKS)
def test_d02_every_file_passes_the_check(tmp_path, task, suffix, capsys):
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


@pytest.mark.parametrize("task", REWARDS)
def test_the_right_answer_scores_one(tmp_path, task):
    compute_score, form = reward_of(task)
    train, validation = RAW[task]
    prepared = prepare_rows(task, tmp_path, train, validation)
    for row in prepared["train"] + prepared["validation"]:
        truth, extra_info = row["reward_model"]["ground_truth"], row["extra_info"]
        assert isinstance(truth, str)
        for solution, score in (
            (form % truth, 1.0),
            (form % "1234567", 0.0),
            (prompt(row)[:0], 0.0),
        ):
            assert compute_score(row["data_source"], solution, truth, extra_info)["acc"] == score


@pytest.mark.skipif(
    importlib.util.find_spec("verl_msgrpo.rewards.code_tests") is None, reason="no code reward"
)
def test_a_right_program_scores_one(tmp_path):
    from verl_msgrpo.rewards.code_tests import compute_score

    apps = raw.eurus(9, tests={"fn_name": "addUp", "inputs": [[1, 2]], "outputs": [[12]]})
    validation = [raw.livecodebench(0), raw.livecodebench(1, functional=True)]
    prepared = prepare_rows("livecodebench", tmp_path, [raw.eurus(2), apps], validation)
    programs = [
        "a, b = map(int, input().split())\nprint(a + b + 2)",
        "def addUp(a, b):\n    return a + b + 9",
        "a, b = map(int, input().split())\nprint(a + b)",
        "class Solution:\n    def addUp(self, a, b):\n        return a + b + 1",
    ]
    rows = prepared["train"] + prepared["validation"]
    for row, right in zip(rows, programs, strict=True):
        for program, acc in ((right, 1.0), (right.replace("a + b", "a - b"), 0.0)):
            result = compute_score(
                data_source=row["data_source"],
                solution_str=f"Here it is:\n```python\n{program}\n```",
                ground_truth=row["reward_model"]["ground_truth"],
                extra_info=row["extra_info"],
            )
            assert result["acc"] == acc, (program, result)


# --- Each data set --------------------------------------------------------------------------------


def test_dapo_is_asked_our_way(tmp_path):
    (row,) = prepare_rows("aime24", tmp_path, [raw.dapo(4, "What is 4 times 6?\nThink.")])["train"]
    assert prompt(row).endswith("\\boxed{}.\n\nWhat is 4 times 6?\nThink.")
    assert "Answer:" not in prompt(row)
    assert row["reward_model"]["ground_truth"] == "24"
    assert row["extra_info"]["id"] == raw.dapo(4)["extra_info"]["index"]
    assert row["extra_info"]["origin"] == "math_dapo"


def test_dapo_repeats_each_problem(tmp_path, capsys):
    rows = [raw.dapo(i) for _ in range(4) for i in range(3)] + [raw.dapo(1, answer="5")]
    prepared = prepare_rows("aime24", tmp_path, rows)["train"]
    assert [row["reward_model"]["ground_truth"] for row in prepared] == ["0", "6", "12"]
    printed = capsys.readouterr().out
    assert "13 rows read, 3 written" in printed
    assert "10 repeated (1 with another answer than the one kept)" in printed


def test_math_reads_the_last_box(tmp_path):
    (row,) = prepare_rows("aime24", tmp_path, [raw.math(3)])["train"]
    assert row["reward_model"]["ground_truth"] == "\\frac{3}{7}"
    assert row["extra_info"]["difficulty"] == "Level 5"


def test_leading_zeros_of_an_answer_stay(tmp_path):
    (row,) = prepare_rows("aime24", tmp_path, (), [raw.aime(7)])["validation"]
    assert row["reward_model"]["ground_truth"] == "007"
    assert "\\{1,2\\}" in prompt(row)


def test_riddlesense_of_its_authors(tmp_path):
    (row,) = prepare_rows("riddlesense", tmp_path, [raw.riddle_release(3)])["train"]
    (same,) = prepare_rows("riddlesense", tmp_path / "hub", [raw.riddle(3)])["train"]
    assert prompt(row) == prompt(same)
    assert prompt(row).endswith("opens no lock?\n\nA. piano\nB. door\nC. map\nD. ring\nE. code")
    assert row["reward_model"]["ground_truth"] == same["reward_model"]["ground_truth"] == "D"
    assert row["extra_info"]["num_options"] == same["extra_info"]["num_options"] == 5


def test_riddlesense_test_split_is_refused(tmp_path, capsys):
    source = raw.write(tmp_path / "test.jsonl", [raw.riddle(1, answerKey="")])
    line = refused(capsys, "riddlesense", tmp_path, "--train", "none", "--validation", source)
    assert "test.jsonl, line 1: answerKey is empty: the test split has no answers" in line


def test_medqa_counts_the_options_of_the_row(tmp_path):
    """Parquet pads the structs of rows with fewer options by nulls."""
    five = {"A": "Rest", "B": "Aspirin", "C": "Surgery", "D": "X-ray", "E": "MRI"}
    rows = [raw.medqa(0), raw.medqa(1, options=five, answer_idx="E")]
    source = raw.write(tmp_path / "raw.parquet", rows)
    assert prepare("medqa", tmp_path, "--train", source, "--validation", "none") == 0
    prepared = read(tmp_path, "train")
    assert [row["extra_info"]["num_options"] for row in prepared] == [4, 5]
    assert prompt(prepared[0]).endswith("D. X-ray")
    assert [row["reward_model"]["ground_truth"] for row in prepared] == ["A", "E"]


def test_search_r1_mix_has_several_answers(tmp_path):
    rows = [raw.search_r1(0), raw.search_r1(1, ["Paris"]), raw.search_r1(2, ["x", "x"])]
    prepared = prepare_rows("hotpotqa", tmp_path, rows)["train"]
    truths = [row["reward_model"]["ground_truth"] for row in prepared]
    assert json.loads(truths[0]) == {"target": ["NYC", "New York City"]}
    assert truths[1:] == ["Paris", "x"]
    assert {row["extra_info"]["origin"] for row in prepared} == {"nq"}
    assert {row["data_source"] for row in prepared} == {"hotpotqa/hotpot_qa"}


@pytest.mark.skipif(
    accepted_answers('{"target": ["a", "b"]}') != ["a", "b"],
    reason="the rewards do not read several answers from a string",
)
def test_each_of_several_answers_scores_one(tmp_path):
    compute_score, form = reward_of("hotpotqa")
    (row,) = prepare_rows("hotpotqa", tmp_path, [raw.search_r1(0)])["train"]
    truth = row["reward_model"]["ground_truth"]
    for answer, score in (("nyc", 1.0), ("New York City!", 1.0), ("Paris", 0.0)):
        assert compute_score("x", form % answer, truth)["acc"] == score


def test_hotpotqa_leaves_the_contexts_behind(tmp_path):
    (row,) = prepare_rows("hotpotqa", tmp_path, [raw.hotpot(5)])["train"]
    assert prompt(row).endswith(
        "Question: Which band {was} founded first, Band 5 or the other one?"
    )
    assert "search tool" in prompt(row)
    assert {k: row["extra_info"][k] for k in ("id", "kind", "difficulty", "num_options")} == {
        "id": raw.hotpot(5)["id"],
        "kind": "comparison",
        "difficulty": "hard",
        "num_options": 0,
    }


def test_search_r1_agent_has_its_own_protocol(tmp_path):
    (row,) = prepare_rows(
        "hotpotqa", tmp_path, [raw.hotpot(5)], (), "--agent-loop", "search_r1_agent"
    )["train"]
    assert row["agent_name"] == "search_r1_agent"
    assert "<search>" in prompt(row)
    assert "<information>" in prompt(row)


def test_livecodebench_has_all_tests(tmp_path):
    stdin, functional = prepare_rows("livecodebench", tmp_path, (), RAW["livecodebench"][1])[
        "validation"
    ]
    truth = json.loads(stdin["reward_model"]["ground_truth"])
    assert truth["fn_name"] is None
    assert len(truth["tests"]) == 1 + 5
    assert truth["tests"][-1] == {"input": "4 2\n", "output": "6\n", "testtype": "stdin"}
    assert "standard input" in prompt(stdin)
    truth = json.loads(functional["reward_model"]["ground_truth"])
    assert truth["fn_name"] == "addUp"
    assert [test["testtype"] for test in truth["tests"]] == ["functional"] * 2
    assert "def addUp(self, a: int, b: int)" in prompt(functional)
    assert stdin["extra_info"]["date"] == "2024-01-03"
    assert stdin["extra_info"]["origin"] == "atcoder"


def test_livecodebench_contest_dates(tmp_path, capsys):
    rows = [raw.livecodebench(i) for i in range(6)]
    window = ("--contest-from", "2024-02-03", "--contest-to", "2024-04-03")
    # Training takes the other contests: what is validated on is left out of it.
    prepared = prepare_rows("livecodebench", tmp_path, rows, rows, *window)
    dates = {s: [r["extra_info"]["date"][5:7] for r in rows] for s, rows in prepared.items()}
    assert dates == {"validation": ["02", "03", "04"], "train": ["01", "05", "06"]}
    printed = capsys.readouterr().out
    assert "3 outside of the contest dates" in printed
    assert "3 also in validation" in printed


def test_eurus_gives_its_code_rows(tmp_path, capsys):
    rows = [raw.eurus(0), raw.eurus(1, ability="math"), raw.eurus(2)]
    prepared = prepare_rows("livecodebench", tmp_path, rows)["train"]
    assert [row["extra_info"]["id"] for row in prepared] == ["0", "2"]
    assert "1 of other tasks" in capsys.readouterr().out
    assert "Your code" not in prompt(prepared[0])
    assert [message["role"] for message in prepared[0]["prompt"]] == ["user"]
    assert json.loads(prepared[0]["reward_model"]["ground_truth"])["tests"] == [
        {"input": "1 2\n", "output": "3\n", "testtype": "stdin"}
    ]


# --- Selection ------------------------------------------------------------------------------------


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


# --- The hub --------------------------------------------------------------------------------------


def test_d01_hub_data_sets_are_downloaded_as_files(tmp_path, monkeypatch):
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
def test_d01_no_network_is_one_line(tmp_path, task):
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


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "rows", "words"),
    [
        ("hotpotqa", [raw.hotpot(0), raw.hotpot(1, answer=None)], "line 2: answer is None"),
        ("hotpotqa", [raw.hotpot(0, question="  ")], "line 1: question is '  '"),
        (
            "hotpotqa",
            [raw.hotpot(0, answer="a</answer>b")],
            "line 1: the answer is 'a</answer>b', which",
        ),
        ("hotpotqa", [raw.hotpot(0, question="\ud800")], "line 1: question holds half a surrogate"),
        ("hotpotqa", [{"id": "1", "text": "q"}], "reads rows with (question, golden_answers) or"),
        ("hotpotqa", [raw.search_r1(0, [])], "line 1: golden_answers is []"),
        ("aime24", [raw.dapo(0, answer=" ")], "line 1: reward_model.ground_truth is ' '"),
        ("aime24", [raw.dapo(0, text=" ")], "line 1: prompt holds instructions but no problem"),
        ("aime24", [{**raw.dapo(0), "prompt": []}], "line 1: prompt has no message of the user"),
        ("aime24", [raw.math(0, solution="7")], "line 1: solution has no answer in \\boxed{}"),
        ("aime24", [raw.aime(0, answer="}")], "line 1: the answer is '}', which"),
        ("riddlesense", [raw.riddle(0, answerKey="F")], "line 1: answerKey is 'F', which is none"),
        ("riddlesense", [raw.riddle(0, choices=None)], "line 1: choices is None"),
        ("medqa", [raw.medqa(0, answer_idx="E")], "line 1: answer_idx is 'E'"),
        ("medqa", [raw.medqa(0, options={"A": "x", "C": "y"})], "line 1: options has the letters"),
        (
            "livecodebench",
            [raw.eurus(0, ability="math")],
            "nothing to write: 1 rows read, 0 written",
        ),
        ("livecodebench", [raw.eurus(0, tests={"inputs": [], "outputs": []})], "holds no tests"),
        ("livecodebench", [raw.livecodebench(0, private_test_cases="??")], "line 1: private_test"),
        ("livecodebench", [raw.livecodebench(0, True, metadata="{}")], "line 1: metadata has no"),
        ("livecodebench", [raw.livecodebench(0, public_test_cases="[1]")], "public_test_cases[0]"),
    ],
)
def test_bad_rows_are_one_line(tmp_path, capsys, task, rows, words):
    (tmp_path / "train.parquet").write_text("the old one")
    source = raw.write(tmp_path / "raw.jsonl", rows)
    line = refused(capsys, task, tmp_path, "--train", source, "--validation", "none")
    assert line.startswith("verl-msgrpo prepare: ")
    assert "raw.jsonl" in line
    assert words in line
    assert (tmp_path / "train.parquet").read_text() == "the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw.jsonl", "train.parquet"]


def test_bad_rows_can_be_left_out(tmp_path, capsys):
    rows = [raw.hotpot(0, answer=None), raw.hotpot(1), raw.hotpot(2, answer="a</answer>b")]
    prepared = prepare_rows("hotpotqa", tmp_path, rows, (), "--skip-bad-rows")["train"]
    assert [row["extra_info"]["index"] for row in prepared] == [0]
    assert "2 bad rows left out (the first: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "raw.jsonl",
            '{"question": "q", "answer": "a"}\nnot json\n',
            "raw.jsonl, line 2: not JSON",
        ),
        ("raw.jsonl", '{"question"', "raw.jsonl, line 1: not JSON"),
        ("raw.jsonl", "[1]\n", "raw.jsonl, line 1: not a JSON object"),
        ("raw.jsonl", "", "raw.jsonl: holds no rows"),
        ("raw.json", "[", "raw.json: not JSON"),
        ("raw.json", "[" * 100_000, "raw.json: not JSON"),
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


def test_an_empty_parquet_file(tmp_path, capsys):
    schema = pa.schema([("question", pa.string()), ("answer", pa.string())])
    pq.write_table(schema.empty_table(), tmp_path / "raw.parquet")
    line = refused(
        capsys, "hotpotqa", tmp_path, "--train", tmp_path / "raw.parquet", "--validation", "none"
    )
    assert "nothing to write: 0 rows read" in line


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
