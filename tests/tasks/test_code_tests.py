"""The public forms of programming tests, in one form."""

import json

import pytest

from verl_msgrpo.tasks.code_tests import as_ground_truth, read_any
from verl_msgrpo.tasks.fields import FieldError


def case(given, expected, testtype="stdin"):
    return {"input": given, "output": expected, "testtype": testtype}


@pytest.mark.parametrize(
    ("value", "tests", "fn_name"),
    [
        (
            {"inputs": ["1\n", "2\n"], "outputs": ["3", "4"]},
            [case("1\n", "3"), case("2\n", "4")],
            None,
        ),
        # Some sets keep lines in a list, or numbers.
        ({"inputs": [["1", "2"]], "outputs": [7]}, [case("1\n2", "7")], None),
        ({"inputs": ["1"], "outputs": ["2"], "fn_name": None}, [case("1", "2")], None),
        # A list of one around each output is APPS's; without it the output is the value itself.
        (
            {"fn_name": "f", "inputs": [["01", 2], [[3]]], "outputs": [[4], [[5]]]},
            [case('"01"\n2', "4", "functional"), case("[3]", "[5]", "functional")],
            "f",
        ),
        (
            {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[4], [5, 6]]},
            [case("1", "[4]", "functional"), case("2", "[5, 6]", "functional")],
            "f",
        ),
        # DeepCoder
        ([{"type": "stdin_stdout", "input": "1", "output": "2"}], [case("1", "2")], None),
        (
            [
                {
                    "testtype": "functional",
                    "input": "1",
                    "output": "2",
                    "metadata": {"func_name": "g"},
                }
            ],
            [case("1", "2", "functional")],
            "g",
        ),
        ({"tests": [case("1", "2")], "fn_name": None}, [case("1", "2")], None),
    ],
)
@pytest.mark.parametrize("form", [lambda value: value, json.dumps])
def test_forms(value, tests, fn_name, form):
    assert read_any(form(value), "f") == (tests, fn_name)
    truth = as_ground_truth(tests, fn_name, "f")
    assert json.loads(truth) == {"tests": tests, "fn_name": fn_name}
    assert read_any(truth, "f") == (tests, fn_name)  # our own form is read back


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "f is None"),
        ("", "f is not JSON"),
        ("[" * 100_000, "f is not JSON"),
        ("7", "f is 7"),
        ({}, 'f needs the lists "inputs" and "outputs"'),
        ({"inputs": ["1"], "outputs": []}, "f has 1 inputs but 0 outputs"),
        ({"inputs": "1", "outputs": "2"}, "f needs the lists"),
        ({"inputs": [], "outputs": [], "fn_name": 3}, "f.fn_name is 3"),
        ({"tests": None}, "f.tests is None"),
        ([7], r"f\[0\] is 7"),
        ([{"input": 1, "output": "2", "testtype": "stdin"}], r"f\[0\] lacks an input or an output"),
        ([{"input": "1", "output": "2", "testtype": "other"}], r"f\[0\].testtype is 'other'"),
        (
            [{"type": "stdin", "input": "", "output": "", "fn_name": name} for name in "ab"],
            "f names several functions",
        ),
    ],
)
def test_what_is_no_test(value, words):
    with pytest.raises(FieldError, match=f"^{words}"):
        read_any(value, "f")


def test_what_nothing_could_pass():
    with pytest.raises(FieldError, match="f holds no tests"):
        as_ground_truth([], None, "f")
    with pytest.raises(FieldError, match="nothing names the function"):
        as_ground_truth([case("1", "2", "functional")], None, "f")
