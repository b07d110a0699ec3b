"""Each public form of rows becomes the problem that it holds, or an error that names the field."""

import importlib
import json

import pytest

from tests.tasks import raw_rows as raw
from tests.tasks.prepared import RAW, prepare, prepare_rows, prompt, read, refused
from verl_msgrpo.rewards import code_tests

pytest.importorskip("math_verify")

REWARDS = {
    "aime24": ("math_answer", "So \\boxed{%s}."),
    "riddlesense": ("multiple_choice", "So \\boxed{%s}."),
    "medqa": ("multiple_choice", "So \\boxed{%s}."),
    "hotpotqa": ("search_qa", "<answer>%s</answer>"),
}


def reward_of(task):
    name, form = REWARDS[task]
    return importlib.import_module(f"verl_msgrpo.rewards.{name}").compute_score, form


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


def test_a_right_program_scores_one(tmp_path):
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
            result = code_tests.compute_score(
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


def test_eurus_gives_its_code_rows(tmp_path, capsys):
    rows = [raw.eurus(0), raw.eurus(1, ability="math"), raw.eurus(2)]
    prepared = prepare_rows("livecodebench", tmp_path, rows)["train"]
    assert [row["extra_info"]["id"] for row in prepared] == ["0", "2"]
    assert "1 for other tasks" in capsys.readouterr().out
    assert "Your code" not in prompt(prepared[0])
    assert [message["role"] for message in prepared[0]["prompt"]] == ["user"]
    assert json.loads(prepared[0]["reward_model"]["ground_truth"])["tests"] == [
        {"input": "1 2\n", "output": "3\n", "testtype": "stdin"}
    ]


@pytest.mark.parametrize(
    ("task", "rows", "words"),
    [
        ("hotpotqa", [raw.hotpot(0), raw.hotpot(1, answer=None)], "line 2: answer is None"),
        ("hotpotqa", [raw.hotpot(0, question="  ")], "line 1: question is '  '"),
        ("hotpotqa", [raw.hotpot(0, answer=float("nan"))], "line 1: answer is nan"),
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
        ("aime24", [{**raw.dapo(0), "prompt": []}], "line 1: prompt has no message from the user"),
        ("aime24", [raw.math(0, solution="7")], "line 1: solution has no answer in \\boxed{}"),
        (
            "aime24",
            [raw.aime(0, answer="}")],
            "line 1: the answer is '}': the ground truth cannot be compared: it does not",
        ),
        (
            "riddlesense",
            [raw.riddle(0, answerKey="F")],
            "line 1: answerKey is 'F'; the labels are [",
        ),
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
