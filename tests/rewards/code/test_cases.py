"""The one reader of tests: every published form, what is refused, and that all who read agree."""

import base64
import json
import os
import pickle
import re
import sys
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reward_fns.code_rows import fenced, skip_without
from verl_msgrpo.rewards import code_tests
from verl_msgrpo.rewards.code import runner
from verl_msgrpo.rewards.code.cases import (
    MAX_DEPTH,
    Case,
    Suite,
    canonical_json,
    read_cases,
    read_livecodebench,
    unpacked,
)
from verl_msgrpo.rewards.code.sandbox.confine import OUTPUT_BYTES
from verl_msgrpo.rewards.ground_truth import GroundTruthError
from verl_msgrpo.tasks import readers
from verl_msgrpo.tasks.row_checks import unusable

PACKED_TESTS = json.dumps([{"input": "1\n", "output": "Zürich 山\n", "testtype": "stdin"}])
LIVECODEBENCH = "livecodebench/code_generation_lite"


def case(given, expected, testtype="stdin", **fields):
    return {"input": given, "output": expected, "testtype": testtype, **fields}


def call(given, expected, **fields):
    return case(given, expected, "functional", **fields)


# --- Published forms ------------------------------------------------------------------------------

FORMS = {
    "APPS, script": (
        {"inputs": ["1\n", "2\n"], "outputs": ["3", "4"]},
        Suite((Case("1\n", "3"), Case("2\n", "4"))),
    ),
    "APPS, lists of lines, numbers": (
        {"inputs": [["1", "2"]], "outputs": [7]},
        Suite((Case("1\n2", "7"),)),
    ),
    "Eurus-2-RL, no name": (
        {"inputs": ["1"], "outputs": ["2"], "fn_name": None},
        Suite((Case("1", "2"),)),
    ),
    "APPS, calls, each value in a list": (
        {"fn_name": "f", "inputs": [["01", 2], [[3]]], "outputs": [[4], [[5]]]},
        Suite((Case('"01"\n2', "4"), Case("[3]", "[5]")), "f", wrapped=True),
    ),
    "TACO, calls, values that are lists": (
        {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[4], [5, 6]]},
        Suite((Case("1", "[4]"), Case("2", "[5, 6]")), "f"),
    ),
    "TACO, calls, values that are text": (
        {"fn_name": "f", "inputs": [[12]], "outputs": ["12"]},
        Suite((Case("12", '"12"'),), "f"),
    ),
    "prime_code, calls in text": (
        {"fn_name": "f", "inputs": ["3\n4"], "outputs": ["7"]},
        Suite((Case("3\n4", "7"),), "f"),
    ),
    "prime_code, calls in text, a list of one": (
        {"fn_name": "f", "inputs": ["3"], "outputs": ["[7]"]},
        Suite((Case("3", "[7]"),), "f"),
    ),
    "calls in text, values as they are": (
        {"fn_name": "f", "inputs": ["3"], "outputs": [[7, 8]]},
        Suite((Case("3", "[7, 8]"),), "f"),
    ),
    "DeepCoder, script": (
        [{"type": "stdin_stdout", "input": "1", "output": "2", "fn_name": None}],
        Suite((Case("1", "2"),)),
    ),
    "DeepCoder, calls": (
        [{"type": "function_call", "fn_name": "f", "input": [[3, 2, 3]], "output": 3}],
        Suite((Case("[3, 2, 3]", "3"),), "f"),
    ),
    "DeepCoder, LiveCodeBench's": (
        [call("1", "2", metadata={"func_name": "g"})],
        Suite((Case("1", "2"),), "g"),
    ),
    "DeepCoder, Codeforces's without a type": (
        [{"input": "1", "output": "2"}],
        Suite((Case("1", "2"),)),
    ),
    "a name, and tests without a type": (
        {"tests": [{"input": "1", "output": "2"}], "fn_name": "f"},
        Suite((Case("1", "2"),), "f"),
    ),
    "PrimeIntellect": (
        {
            "language": "python",
            "test_cases": [{"type": "stdin_stdout", "input": "1\n", "output": "2\n"}],
        },
        Suite((Case("1\n", "2\n"),)),
    ),
    "ours": ({"tests": [case("1", "2")], "fn_name": None}, Suite((Case("1", "2"),))),
    "ours, and columns of other rows": (
        {"tests": [case("1", "2", fn_name=None)], "inputs": None, "assert_case": None},
        Suite((Case("1", "2"),)),
    ),
    "a script, though a function has a name": (
        {"tests": [case("1", "2")], "fn_name": "main"},
        Suite((Case("1", "2"),)),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    value, suite = FORMS[form]
    for written in (value, json.dumps(value), json.dumps(value).encode()):
        assert read_cases(written) == suite
    assert read_cases(canonical_json(suite)) == suite


def test_numpy_s_arrays_as_parquet_gives_them():
    tests = {
        "inputs": np.array([np.array([1, np.array([2, 3])], dtype=object)], dtype=object),
        "outputs": np.array([np.int64(4)], dtype=object),
        "fn_name": "f",
    }
    assert read_cases(tests) == Suite((Case("1\n[2, 3]", "4"),), "f")
    texts = {"inputs": np.array(["1 2"]), "outputs": np.array(["3"]), "fn_name": None}
    assert read_cases(texts) == Suite((Case("1 2", "3"),))
    assert read_cases({"tests": np.array([case("1", "2")])}) == Suite((Case("1", "2"),))


def test_the_name_may_be_in_the_row_s_extra_info():
    tests = [call("1", "2")]
    for extra_info in ({"fn_name": "f"}, {"func_name": "f"}):
        assert read_cases(tests, extra_info).function == "f"
    assert read_cases({"inputs": ["1"], "outputs": ["2"]}, {"fn_name": "f"}).function == "f"
    assert read_cases([case("1", "2")], {"fn_name": "no name"}).function == ""  # nobody asks
    assert read_cases({"tests": tests, "fn_name": "g"}, {"fn_name": "f"}).function == "g"


def test_the_canonical_form_is_livecodebench_s():
    suite = Suite((Case("1", "2"),), "f")
    assert json.loads(canonical_json(suite)) == {"tests": [call("1", "2")], "fn_name": "f"}
    script = Suite((Case("1", "2"),))
    assert json.loads(canonical_json(script)) == {"tests": [case("1", "2")], "fn_name": None}


def test_livecodebench_s_columns():
    public, private = [case("1", "2")], [case("3", "4"), case("5", "6")]
    suite = Suite((Case("1", "2"), Case("3", "4"), Case("5", "6")))
    for packed in (json.dumps(private), pack(pickle.dumps(json.dumps(private)))):
        assert read_livecodebench(json.dumps(public), packed, "{}") == suite
    calls = [call("[1]\n2", "3")]
    named = read_livecodebench(json.dumps(calls), json.dumps(calls), '{"func_name": "f"}')
    assert named == Suite((Case("[1]\n2", "3"),) * 2, "f")


@pytest.mark.parametrize(
    ("public", "private", "metadata", "words"),
    [
        ([case("1", "2")], [call("1", "2")], {"func_name": "f"}, "private_test_cases has tests of"),
        ([call("1", "2")], [], {}, "metadata has no func_name"),
        ([call("1", "2")], [], {"func_name": "a b"}, r"metadata\.func_name is 'a b'"),
        (
            [call("1", "2")],
            [call("1", "x")],
            {"func_name": "f"},
            r"private_test_cases\[0\]\.output",
        ),
        ([case("1", {})], [], {}, r"public_test_cases\[0\]\.output is {}"),
        ([], [], {}, "private_test_cases holds no tests"),
    ],
)
def test_livecodebench_s_columns_that_are_refused(public, private, metadata, words):
    with pytest.raises(GroundTruthError, match=f"^{words}"):
        read_livecodebench(*map(json.dumps, (public, private, metadata)))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "f is None"),
        ("", "f is not JSON"),
        ("[" * 100_000, "f is not JSON"),
        ("7", "f is 7"),
        (object(), "f is <object"),
        ({}, 'f needs the lists "inputs" and "outputs"'),
        ({"functional": "assert f(1) == 2"}, "f needs the lists"),
        ({"inputs": ["1"], "outputs": []}, "f has 1 inputs but 0 outputs"),
        ({"inputs": "1", "outputs": "2"}, "f needs the lists"),
        ({"inputs": [], "outputs": []}, "f holds no tests"),
        ([], "f holds no tests"),
        ({"inputs": ["1"], "outputs": ["2"], "fn_name": 3}, r"f\.fn_name is 3"),
        ({"inputs": ["1"], "outputs": ["2"], "fn_name": "f(x)"}, r"f\.fn_name is 'f\(x\)'"),
        ({"tests": [case("1", "2")], "inputs": ["1"]}, "f has both tests and inputs"),
        ({"tests": None}, "f needs the lists"),
        ({"tests": 7}, r"f\.tests is 7"),
        ({"inputs": [""], "outputs": [None], "assert_case": ["assert f(1)"]}, r"f\.assert_case"),
        ({"language": "cpp", "test_cases": [case("1", "2")]}, r"f\.language is 'cpp'"),
        ([7], r"f\[0\] is 7"),
        ([{"input": "1"}], r"f\[0\] is .*must have an input and an output"),
        ([case(None, "2")], r"f\[0\]\.input is None"),
        ([case("1", None)], r"f\[0\]\.output is None"),
        ([case("1", True)], r"f\[0\]\.output is True"),
        ([case([["1"]], "2")], r"f\[0\]\.input is \[\['1'\]\]"),
        ([case("1", "2", "other")], r"f\[0\]\.testtype is 'other'"),
        ([case("1", "2", [])], r"f\[0\]\.testtype is \[\]"),
        ([case("1", "\ud800")], r"f\[0\]\.output holds half a surrogate"),
        ([case("1", "x" * (OUTPUT_BYTES + 1))], rf"f\[0\]\.output holds more than {OUTPUT_BYTES}"),
        ([case("1", " \n"), case("2", "")], "f: every test expects nothing"),
        ([call("1", "null", fn_name="f")], "f: every test expects nothing"),
        ([call("1", "2")], "f has functional tests, but nothing names the function"),
        ([call("1", "2", fn_name="f"), case("1", "2")], "f has tests of both types"),
        ([call("1", "2", fn_name=name) for name in "gf"], "f names several functions: f, g"),
        ([case("1", "2", fn_name=name) for name in "ab"], "f names several functions: a, b"),
        ([call("1", "not json", fn_name="f")], r"f\[0\]\.output is not JSON"),
        ([call("not json", "1", fn_name="f")], r"f\[0\]\.input is not JSON"),
        ([call({"x": 1}, "1", fn_name="f")], r"f\[0\]\.input is {'x': 1}; it must be a list"),
        ([call([object()], "1", fn_name="f")], r"f\[0\]\.input has no form in JSON"),
        ([call("1", "[NaN]", fn_name="f")], r"f\[0\]\.output holds NaN"),
        ([call([1], {"a": float("nan")}, fn_name="f")], r"f\[0\]\.output holds NaN"),
        ({"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}, r"f\.inputs\[0\] is not JSON"),
        ({"inputs": [["x"]], "outputs": [{1}], "fn_name": "f"}, r"f\.outputs\[0\] has no form"),
    ],
)
def test_what_is_refused(value, words):
    with pytest.raises(GroundTruthError, match=f"^{words}"):
        read_cases(value, field="f")


def test_what_is_nested_too_deeply():
    value = []
    for _ in range(10 * sys.getrecursionlimit()):
        value = [value]
    with pytest.raises(GroundTruthError, match=r"^f is nested too deeply"):
        read_cases(value, field="f")


def nested(depth):
    return "[" * depth + "7" + "]" * depth


def test_values_as_deep_as_is_allowed_can_be_compared():
    deep = {"inputs": ["1"], "outputs": [nested(MAX_DEPTH)], "fn_name": "f"}
    suite = read_cases(deep)
    assert code_tests.is_right(suite, 0, nested(MAX_DEPTH).encode())
    assert not code_tests.is_right(suite, 0, nested(MAX_DEPTH - 1).encode())
    for outputs in ([nested(MAX_DEPTH + 1)], [nested(300)], [json.loads(nested(150))]):
        with pytest.raises(GroundTruthError, match=r"^f\.outputs\[0\] is nested deeper than 100"):
            read_cases({**deep, "outputs": outputs}, field="f")
    wide = {**deep, "outputs": [json.dumps([[[7]]] * 200)]}
    assert read_cases(wide).cases[0].output == wide["outputs"][0]


# --- All who read agree ---------------------------------------------------------------------------


def by_prepare(truth, extra_info):
    """The ground truth that `prepare` writes for such a row; raises GroundTruthError."""
    row = {
        "prompt": [{"role": "user", "content": "Add."}],
        "reward_model": {"ground_truth": truth},
        "extra_info": extra_info,
    }
    return readers.programs_of_verl(row).ground_truth


def reward_of(truth, extra_info=None, program="x"):
    return code_tests.compute_score(LIVECODEBENCH, fenced(program), truth, extra_info)


texts = st.one_of(
    st.sampled_from(["1", "[1]\n2", "null", "", "\ud800", "NaN", '"a"', "[1,\r2]", "\u2028"]),
    st.text(max_size=8),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=5,
)
names = st.sampled_from([None, *("f",) * 20, "g", "", "a b"])
some_values = st.one_of(texts, values)
wrapped_values = st.lists(values, min_size=1, max_size=1)
given_values = st.one_of(st.lists(values, max_size=2), texts, values)
kinds = st.sampled_from(["stdin", "functional", "stdin_stdout", "function_call", None, "other"])


def lists_of(kind):
    """Tests most of which have one type."""
    types = st.sampled_from([kind] * 20 + ["stdin"])
    wanted = st.one_of(some_values, wrapped_values)
    return st.lists(
        st.fixed_dictionaries(
            {"input": given_values, "output": wanted},
            optional={"testtype": types, "type": types, "fn_name": names},
        ),
        max_size=3,
    )


tests_of_any_form = kinds.flatmap(lists_of)
calls = st.lists(st.lists(values, max_size=2), min_size=1, max_size=3)
inputs = st.one_of(st.lists(given_values, max_size=3), calls)
outputs = st.one_of(
    st.lists(some_values, max_size=3), st.lists(wrapped_values, min_size=1, max_size=3)
)
ground_truths = st.one_of(
    tests_of_any_form,
    st.builds(lambda tests, name: {"tests": tests, "fn_name": name}, tests_of_any_form, names),
    st.builds(
        lambda given, wanted, name: {
            "inputs": given[: len(wanted)],
            "outputs": wanted[: len(given)],
            "fn_name": name,
        },
        inputs,
        outputs,
        names,
    ),
    values,
)


@pytest.fixture
def right_answers(monkeypatch):
    """In place of a sandbox: every test gets exactly what it expects."""

    def run(expected, program, inputs, judge, limit_s):
        for number in range(len(inputs)):
            suite = read_cases(expected[0], expected[1])
            judge(number, suite.cases[number].output.encode())
        return runner.End()

    asked = []
    monkeypatch.setattr(code_tests, "choose", lambda wanted: wanted)
    monkeypatch.setattr(code_tests, "launch", lambda way, memory_bytes: asked[-1])
    monkeypatch.setattr(runner, "run", run)
    return asked


@given(ground_truths, st.one_of(st.none(), st.builds(lambda name: {"fn_name": name}, names)))
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_prepare_check_data_and_the_reward_agree(right_answers, truth, extra_info):
    """What one refuses all do, with the field; what `prepare` writes can be passed."""
    try:
        read_cases(truth, extra_info)
    except GroundTruthError:
        right_answers.append((truth, extra_info))
        with pytest.raises(GroundTruthError, match=r"^(reward_model\.ground_truth|extra_info)"):
            by_prepare(truth, extra_info)
        refusal = unusable(LIVECODEBENCH, truth, extra_info)
        assert re.match("cannot be scored: (ground_truth|extra_info)", refusal)
        assert reward_of(truth, extra_info)["error"] == 1
        return
    written = by_prepare(truth, extra_info)
    assert read_cases(written) == read_cases(truth, extra_info)
    for gold in ((truth, extra_info), (written, None)):
        right_answers.append(gold)
        assert unusable(LIVECODEBENCH, *gold) == ""
        reward = reward_of(*gold)
        assert (reward["acc"], reward["error"]) == (1, 0)


PROGRAMS = {
    # what the form says, a program that is right, one that is wrong
    "calls in text": (
        {"fn_name": "f", "inputs": ["3\n4"], "outputs": ["7"]},
        "def f(a, b): return a + b",
        "def f(a): return 7",
    ),
    "values that are text": (
        {"fn_name": "f", "inputs": [[12]], "outputs": ["12"]},
        "def f(x): return '12'",
        "def f(x): return 12",
    ),
    "calls of DeepCoder": (
        [{"type": "function_call", "fn_name": "f", "input": [[3, 2, 3]], "output": 3}],
        "def f(x): return len(x)",
        "print(3)\ndef f(x): return 2",
    ),
    "wrapped values": (
        {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[2], [3]]},
        "def f(x): return x + 1",
        "def f(x): return [x]",
    ),
    "wrapped values, and a program that returns lists": (
        {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[2], [3]]},
        "def f(x): return [x + 1]",
        "def f(x): return [[x + 1]]",
    ),
    "values that are lists": (
        {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[2], [3, 3]]},
        "def f(x): return [x + 1] * x",
        "def f(x): return x + 1 if x == 1 else [x + 1] * x",
    ),
    "arguments with line separators in them": (
        {"fn_name": "f", "inputs": ['"a\u2028b"\r\n[1,\r2]'], "outputs": ["5"]},
        "def f(a, b): return len(a) + len(b)",
        "def f(a, b): return 4",
    ),
    "lists of lines": (
        {"inputs": [["1", "2"]], "outputs": [["3", "4"]]},
        "a, b = int(input()), int(input())\nprint(a + b)\nprint(b * b)",
        "a, b = int(input()), int(input())\nprint(a + b)",
    ),
    "PrimeIntellect": (
        {
            "language": "python",
            "test_cases": [{"type": "stdin_stdout", "input": "1", "output": "2"}],
        },
        "print(int(input()) + 1)",
        "print(int(input()))",
    ),
}


@pytest.mark.parametrize("form", PROGRAMS)
def test_programs_are_judged_alike_before_and_after_prepare(form):
    skip_without("auto")
    truth, right, wrong = PROGRAMS[form]
    for gold in (truth, json.dumps(truth), by_prepare(truth, {})):
        assert reward_of(gold, program=right)["score"] == 1
        reward = reward_of(gold, program=wrong)
        assert (reward["score"], reward["error"]) == (0, 0)


# --- LiveCodeBench's pickled tests are read, and nothing in them is executed ----------------------


def pack(data):
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", [PACKED_TESTS, "", "x" * 200_000, "\n\\é\u2028'" * 50])
def test_texts_of_every_protocol(protocol, text):
    assert unpacked(pack(pickle.dumps(text, protocol=protocol)), "f") == text


def test_plain_json():
    assert unpacked(PACKED_TESTS, "f") == PACKED_TESTS


class Payload:
    """Creates a file where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: ("[]", x), lambda x: {"a": x}])
def test_code_is_refused_and_not_run(tmp_path, protocol, wrap):
    target = tmp_path / "made"
    data = pickle.dumps(wrap(Payload(target)), protocol=protocol)
    with pytest.raises(GroundTruthError, match="f is a pickle of something else than a text"):
        unpacked(pack(data), "f")
    assert not target.exists()
    pickle.loads(data)  # the payload is a real one
    assert target.exists()


@pytest.mark.parametrize("value", [7, b"[]", ["[]"], None, str, len, ("a", "b"), {"a": 1}])
def test_other_values_are_refused(value):
    with pytest.raises(GroundTruthError, match="something else than a text"):
        unpacked(pack(pickle.dumps(value)), "f")


def test_a_text_behind_a_text_is_refused():
    data = pickle.dumps("[1]")[:-1] + pickle.dumps("[2]")[2:]
    with pytest.raises(GroundTruthError, match="2 texts"):
        unpacked(pack(data), "f")


def test_a_memo_that_would_fill_the_memory_is_not_built():
    data = b"\x80\x04X\x02\x00\x00\x00[]r\xff\xff\xff\x7f."  # LONG_BINPUT 2**31 - 1
    assert unpacked(pack(data), "f") == "[]"


def test_unpacked_size_is_bounded():
    bomb = pack(pickle.dumps("x" * 5_000_000))
    assert len(bomb) < 10_000
    with pytest.raises(GroundTruthError, match="f holds more than 1000000 bytes"):
        unpacked(bomb, "f", max_bytes=1_000_000)


@pytest.mark.parametrize(
    "packed",
    [
        "",
        "not base64!",
        "////",
        base64.b64encode(b"not zlib").decode(),
        pack(pickle.dumps(PACKED_TESTS))[:-8],
        pack(b""),
        pack(b"\x80"),
        pack(b"\x80\x04."),
        pack(b"not a pickle"),
        pack(pickle.dumps(PACKED_TESTS)[:-1]),
        pack(b"X\xff\xff\xff\xff."),
    ],
)
def test_damaged_fields(packed):
    with pytest.raises(GroundTruthError, match=r"^f "):
        unpacked(packed, "f")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_pickles_give_a_text_or_an_error(data):
    try:
        text = unpacked(pack(data), "f")
    except GroundTruthError:
        return
    assert isinstance(text, str)


@settings(deadline=None)
@given(st.text())
def test_every_text_comes_back(text):
    assert unpacked(pack(pickle.dumps(text, protocol=4)), "f") == text
