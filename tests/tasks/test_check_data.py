"""`verl-msgrpo check-data`: each fault is named by file, row and field."""

import copy
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_msgrpo.cli import main
from verl_msgrpo.tasks.check_data import check_files
from verl_msgrpo.tasks.registry import (
    AIME24,
    DAPO_MATH,
    HOTPOTQA,
    LIVECODEBENCH,
    MEDQA,
    RIDDLESENSE,
)

pytest.importorskip("math_verify")

TESTS = json.dumps({"tests": [{"input": "1", "output": "2", "testtype": "stdin"}], "fn_name": None})


def row(number=0, **fields):
    """A row of anybody's data set, in verl's format."""
    return {
        "data_source": "somebody/else",
        "agent_name": "search_tool_agent",
        "prompt": [{"role": "user", "content": f"Question {number}?"}],
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "extra_info": {"index": number, "num_options": 4},
        **fields,
    }


def file(tmp_path, rows, name="train.parquet", **options):
    path = tmp_path / name
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def found(report):
    return [(finding.row, finding.field) for finding in report.errors]


def without(place):
    """Rows that lack a column, or a field of a struct."""
    rows = copy.deepcopy([row(0), row(1)])
    column, _, inner = place.partition(".")
    for item in rows:
        if inner:
            del item[column][inner]
        else:
            del item[column]
    return rows


def test_a_good_file(tmp_path, capsys):
    path = file(tmp_path, [row(0), row(1)])
    assert main(["check-data", str(path), "--needs-agent"]) == 0
    printed = capsys.readouterr().out
    assert f"{path}: 2 rows" in printed
    assert "data_source: somebody/else 2" in printed
    assert "agent_name: search_tool_agent 2" in printed
    assert "0 errors, 0 warnings" in printed


@pytest.mark.parametrize(
    "place",
    [
        "prompt",
        "data_source",
        "reward_model",
        "reward_model.ground_truth",
        "extra_info",
        "agent_name",
    ],
)
def test_every_column_is_named_when_it_is_missing(tmp_path, capsys, place):
    path = file(tmp_path, without(place))
    assert main(["check-data", str(path), "--needs-agent"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith(f"{path}: {place}: ")]) == 1
    assert "1 error, 0 warnings" in lines


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [{"role": "user", "content": " "}]}, "prompt[0].content"),
        ({"prompt": [{"role": None, "content": "x"}]}, "prompt[0].role"),
        ({"prompt": [None]}, "prompt[0]"),
        ({"data_source": None}, "data_source"),
        ({"data_source": ""}, "data_source"),
        ({"agent_name": None}, "agent_name"),
        ({"reward_model": None}, "reward_model"),
        ({"reward_model": {"style": "rule", "ground_truth": None}}, "reward_model.ground_truth"),
        ({"reward_model": {"style": "rule", "ground_truth": ""}}, "reward_model.ground_truth"),
        ({"extra_info": None}, "extra_info"),
        ({"extra_info": {"index": None, "num_options": None}}, "extra_info"),
    ],
)
def test_null_and_empty_values_are_named_with_their_row(tmp_path, capsys, fields, place):
    rows = [row(0), row(1), row(2, **fields), row(3, **fields), row(4)]
    path = file(tmp_path, rows)
    assert main(["check-data", str(path)]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{path}, row 3: {place}: ")
    assert first.endswith("(and 1 more row)")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"prompt": "Question?"}, "prompt"),
        ({"prompt": ["Question?"]}, "prompt"),
        ({"prompt": [{"from": "user", "value": "Question?"}]}, "prompt"),
        ({"data_source": 7}, "data_source"),
        ({"agent_name": 7}, "agent_name"),
        ({"reward_model": "42"}, "reward_model"),
        ({"extra_info": "{}"}, "extra_info"),
    ],
)
def test_columns_of_the_wrong_type(tmp_path, fields, place):
    report = check_files([file(tmp_path, [row(0, **fields)])])
    assert found(report) == [(0, place)]


def test_every_fault_of_a_row_is_found(tmp_path):
    faulty = row(1, data_source=None, extra_info=None, reward_model=None)
    report = check_files([file(tmp_path, [row(0), faulty])])
    assert found(report) == [(2, "data_source"), (2, "reward_model"), (2, "extra_info")]


@pytest.mark.parametrize(
    ("truth", "fine"),
    [
        (["a", "b"], True),
        ([], False),
        ([""], False),
        ({"target": ["x"]}, True),
        (0, True),
        (7.5, True),
    ],
)
def test_ground_truths_of_any_type(tmp_path, truth, fine):
    rows = [row(0, reward_model={"ground_truth": truth})]
    if truth == []:
        rows.append(row(1, reward_model={"ground_truth": ["a"]}))  # so that the list has a type
    places = [] if fine else [(1, "reward_model.ground_truth")]
    assert found(check_files([file(tmp_path, rows)])) == places


# --- Several files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"extra_info": {"index": 0}}, "extra_info.num_options"),
        ({"extra_info": {"index": 0, "num_options": 4, "x": 1}}, "extra_info.x"),
        ({"extra_info": {"index": "0", "num_options": 4}}, "extra_info.index"),
        ({"reward_model": {"style": "r", "ground_truth": ["4"]}}, "reward_model.ground_truth"),
        ({"extra_info": {"index": None, "num_options": 4}}, None),  # null fits every type
        ({"other": 7}, None),
    ],
)
def test_struct_fields_that_differ_between_files(tmp_path, fields, place):
    """The same verdict as verl's own way of joining files gives, or nulls in its place."""
    datasets = pytest.importorskip("datasets")
    paths = [file(tmp_path, [row(0)], "a.parquet"), file(tmp_path, [row(1, **fields)], "b.parquet")]
    report = check_files(paths)
    assert [(finding.file, finding.field) for finding in report.errors] == (
        [(str(paths[1]), place)] if place else []
    )
    parts = [
        datasets.load_dataset("parquet", data_files=str(p), cache_dir=str(tmp_path / "c"))["train"]
        for p in paths
    ]
    try:
        joined = datasets.concatenate_datasets(parts)[:]
    except (ValueError, TypeError, pa.ArrowInvalid):
        assert place
    else:
        assert not place or any(None in info.values() for info in joined["extra_info"])


def test_a_file_without_agents_beside_one_with_agents(tmp_path):
    paths = [
        file(tmp_path, [row(0)], "a.parquet"),
        file(tmp_path, without("agent_name")[1:], "b.parquet"),
    ]
    (error,) = check_files(paths).errors
    assert (error.file, error.field) == (str(paths[1]), "agent_name")
    assert "verl fills it with nulls" in error.message


@pytest.mark.parametrize(
    ("rows", "options", "fine"),
    [
        ([row(0)], {}, True),
        ([row(0), row(1, agent_name="single_turn_agent")], {}, True),  # mixed tasks
        ([row(0, agent_name="single_turn_agent")], {}, False),
        (without("agent_name"), {}, False),
        (without("agent_name"), {"agent_loop": "search_tool_agent"}, True),
        ([row(0, agent_name="single_turn_agent")], {"agent_loop": "search_tool_agent"}, False),
    ],
)
def test_some_row_reaches_the_tools(tmp_path, rows, options, fine):
    path = file(tmp_path, rows)
    assert check_files([path]).errors == []
    errors = found(check_files([path], needs_agent=True, **options))
    assert errors == ([] if fine else [(0, "agent_name")])


def test_repeated_prompts_are_a_warning(tmp_path, capsys):
    paths = [
        file(tmp_path, [row(0), row(1), row(0)], "a.parquet"),
        file(tmp_path, [row(1)], "b.parquet"),
    ]
    assert main(["check-data", *map(str, paths)]) == 0
    printed = capsys.readouterr().out
    assert f"{paths[0]}, row 3: warning: prompt: the prompt repeats an earlier one\n" in printed
    assert f"{paths[1]}, row 1: warning: prompt: " in printed
    assert "0 errors, 2 warnings" in printed


def test_prompts_are_equal_whatever_the_order_of_their_fields(tmp_path):
    """As pandas and other writers sort them."""
    other = row(0, prompt=[{"content": "Question 0?", "role": "user"}])
    paths = [file(tmp_path, [row(0)], "a.parquet"), file(tmp_path, [other], "b.parquet")]
    (fault,) = check_files(paths).faults.values()
    assert (fault.file, fault.row, fault.warning) == (str(paths[1]), 1, True)


# --- Ground truths --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "truth", "fine"),
    [
        (AIME24, "073", True),
        (DAPO_MATH, "\\frac{1}{2}", True),
        (DAPO_MATH, "\\frac{1}{2", False),
        (DAPO_MATH, "1" * 3000, True),  # equal to the letter, which takes no checking
        (RIDDLESENSE, "D", True),
        (RIDDLESENSE, "E", False),  # of four options
        (MEDQA, "Aspirin", False),
        (MEDQA, "A or B", False),
        (HOTPOTQA, "yes", True),
        (HOTPOTQA, "a</answer>b", False),
        (LIVECODEBENCH, TESTS, True),
        (LIVECODEBENCH, '{"tests": [], "fn_name": null}', False),  # K11
        (LIVECODEBENCH, "no tests", False),
        (LIVECODEBENCH, TESTS.replace("stdin", "functional"), False),
        ("somebody/else", "no tests", True),
    ],
)
def test_ground_truths_that_no_answer_could_meet(tmp_path, caplog, source, truth, fine):
    rows = [row(0), row(1, data_source=source, reward_model={"ground_truth": truth, "style": "r"})]
    report = check_files([file(tmp_path, rows)])
    assert found(report) == ([] if fine else [(2, "reward_model.ground_truth")])
    assert caplog.records == []


def test_several_answers_are_each_accepted(tmp_path):
    rows = [
        row(
            0, data_source=HOTPOTQA, reward_model={"ground_truth": {"target": ["NYC", "the city"]}}
        ),
        row(
            1, data_source=HOTPOTQA, reward_model={"ground_truth": {"target": ["x", "a</answer>"]}}
        ),
    ]
    assert found(check_files([file(tmp_path, rows)])) == [(2, "reward_model.ground_truth")]


# --- Files ----------------------------------------------------------------------------------------


def test_large_files_are_streamed(tmp_path):
    """Rows are counted on through row groups and batches."""
    rows = [row(n) for n in range(1000)]
    rows[777]["extra_info"] = None
    report = check_files([file(tmp_path, rows, row_group_size=300)])
    assert found(report) == [(778, "extra_info")]
    assert list(report.rows.values()) == [1000]


def test_the_prompts_column_may_have_another_name(tmp_path):
    rows = [{("chat" if k == "prompt" else k): v for k, v in row(0).items()}]
    path = file(tmp_path, rows)
    assert found(check_files([path])) == [(0, "prompt")]
    assert found(check_files([path], prompt_key="chat")) == []


def test_files_of_pandas(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame([row(n, reward_model={"ground_truth": np.array(["a"])}) for n in range(2)])
    frame.to_parquet(tmp_path / "p.parquet")
    assert check_files([tmp_path / "p.parquet"]).errors == []


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"{}\n", b"PAR1" + b"\0" * 64 + b"PAR1"])
def test_unreadable_files_are_one_line(tmp_path, capsys, content):
    path = tmp_path / "x.parquet"
    if content is not None:
        path.write_bytes(content)
    assert main(["check-data", str(path)]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert str(path) in line


def test_empty_and_damaged_files(tmp_path, capsys):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist([row(0)]).slice(0, 0), path)
    assert main(["check-data", str(path)]) == 2
    assert "holds no rows" in capsys.readouterr().err

    file(tmp_path, [row(n, data_source=f"{n}" * 50) for n in range(500)], "x.parquet")
    data = bytearray(path.read_bytes())
    data[100:600] = b"\xff" * 500
    path.write_bytes(data)
    assert main(["check-data", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be read" in line
