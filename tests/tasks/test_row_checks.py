"""Ground truths are asked of the reward that dispatch would call, for each source of its table."""

import json
import sys

import pytest

from tests.tasks import raw_rows as raw
from tests.tasks.prepared import prepare, refused
from verl_msgrpo.cli import main
from verl_msgrpo.rewards import code_tests
from verl_msgrpo.rewards.sources import TABLE
from verl_msgrpo.tasks.row_checks import unusable

TESTS = json.dumps({"tests": [{"input": "1", "output": "2", "testtype": "stdin"}], "fn_name": None})
# reward -> (a ground truth that it scores, one that it can give nothing but 0 for)
TRUTHS = {
    "math_answer": ("\\frac{1}{2}", "\\frac{1}{2"),
    "multiple_choice": ("B", "E"),
    "search_qa": ("Dune", "a</answer>b"),
    "code_tests": (TESTS, TESTS.replace("2", "")),
}
EXTRA_INFO = {"index": 0, "num_options": 4}


@pytest.mark.parametrize("source", TABLE)
def test_every_source_that_dispatch_gives_to_one_of_our_rewards(source):
    if TABLE[source] == "math_answer":
        pytest.importorskip("math_verify")
    right, wrong = TRUTHS[TABLE[source]]
    assert unusable(source, right, EXTRA_INFO) == ""
    assert unusable(source, wrong, EXTRA_INFO)


@pytest.mark.parametrize("source", ["somebody/else", "openai/gsm8k", ""])
def test_other_sources_are_not_checked(source):
    assert unusable(source, "", EXTRA_INFO) == ""


def test_an_empty_truth_is_told_without_the_reward_s_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl_msgrpo.rewards.math_answer", None)
    assert unusable("math_dapo", [], EXTRA_INFO).startswith("cannot be scored: no answer in")
    with pytest.raises(ImportError):
        unusable("math_dapo", "1", EXTRA_INFO)


# --- Programs -------------------------------------------------------------------------------------


def stdin(given, expected):
    return {"input": given, "output": expected, "testtype": "stdin"}


def call(given, expected):
    return {"input": given, "output": expected, "testtype": "functional"}


NEVER_SCORED = {
    "both types at once": ({"tests": [stdin("1", "2"), call("1", "2")], "fn_name": "f"}, "both"),
    "nothing is expected": ({"tests": [stdin("1", ""), stdin("2", "\n")]}, "expects nothing"),
    "None is expected": ({"tests": [call("1", "null")], "fn_name": "f"}, "expects nothing"),
    "the value is not JSON": ({"tests": [call("1", "[1, ")], "fn_name": "f"}, "is not JSON"),
    "an argument is not JSON": ({"tests": [call("one", "1")], "fn_name": "f"}, "is not JSON"),
    "no name": ({"tests": [call("1", "2")]}, "nothing names the function"),
    "no tests": ({"inputs": [], "outputs": []}, "no tests"),
}


@pytest.mark.parametrize("case", NEVER_SCORED)
def test_prepare_and_check_data_refuse_what_the_reward_refuses(tmp_path, capsys, case):
    truth, words = NEVER_SCORED[case]
    rows = [raw.eurus(0), raw.eurus(1, tests=truth)]

    reward = code_tests.compute_score(
        data_source="taco",
        solution_str="```python\nprint(2)\n```",
        ground_truth=json.dumps(truth),
        extra_info={},
    )
    assert (reward["error"], reward["score"]) == (1, 0)

    source = raw.write(tmp_path / "raw.jsonl", rows)
    line = refused(capsys, "livecodebench", tmp_path, "--train", source, "--validation", "none")
    assert f"{source}, line 2: reward_model.ground_truth" in line
    assert words in line

    file = raw.write(tmp_path / "as_they_are.parquet", rows)
    assert main(["check-data", file]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{file}, row 2: reward_model.ground_truth: cannot be scored: ")
    assert words in first


def test_what_prepare_leaves_is_what_check_data_accepts(tmp_path, capsys):
    bad = [raw.eurus(n, tests=truth) for n, (truth, _) in enumerate(NEVER_SCORED.values())]
    source = raw.write(tmp_path / "raw.jsonl", [raw.eurus(9), *bad])
    arguments = ("--train", source, "--validation", "none", "--skip-bad-rows")
    assert prepare("livecodebench", tmp_path, *arguments) == 0
    printed = capsys.readouterr().out
    assert f"1 written, {len(bad)} bad, left out" in printed
    assert main(["check-data", str(tmp_path / "train.parquet")]) == 0


@pytest.mark.parametrize(
    ("truth", "reason"),
    [
        (r"either \boxed{5} or \boxed{7}", "the ground truth has 2 boxes, it is no single value"),
        (r"\langle 7,\frac12\rangle", "does not parse as a whole"),
        (r"(\frac{1}{2}", "does not parse as a whole"),
    ],
)
def test_a_mathematical_answer_that_is_no_single_value(truth, reason):
    pytest.importorskip("math_verify")
    assert reason in unusable("math_dapo", truth, EXTRA_INFO)
    assert unusable("math_dapo", r"\boxed{\frac12}", EXTRA_INFO) == ""
