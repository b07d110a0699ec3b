"""Of all rewards: arbitrary text never raises, takes too long, or scores above 1; same keys always.

Where a program would run or algebra begin, stand-ins take any text for right or wrong, so that
thousands of texts can be tried; the tests of those parts are elsewhere.
"""

import json
import sys
import time
import types

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reward_fns.loading import check_shape, load

pytest.importorskip("math_verify")
from verl_msgrpo.rewards import code_tests, math_answer
from verl_msgrpo.rewards.code import runner
from verl_msgrpo.rewards.code.cases import canonical_json, read_cases
from verl_msgrpo.rewards.code.runner import prelude
from verl_msgrpo.rewards.ground_truth import GroundTruthError
from verl_msgrpo.rewards.math.pool import Verdict
from verl_msgrpo.rewards.response import python_blocks
from verl_msgrpo.rewards.sources import TABLE

NAMES = ["math_answer", "multiple_choice", "search_qa", "code_tests", "dispatch"]
ENDS = ["format_ok", "truncated", "timeout", "error", "pred"]
PARTS = {
    "math_answer": [],
    "multiple_choice": ["hedged"],
    "search_qa": ["em", "f1", "sub_em"],
    "code_tests": ["passed"],
    "dispatch": ["em", "f1", "sub_em", "hedged", "passed"],
}
TESTS = json.dumps({"tests": [{"input": "1", "output": "1", "testtype": "stdin"}] * 2})
# No ordinary text of a few thousand characters may take longer, on however busy a machine.
LIMIT_S = 20.0

pieces = st.sampled_from(
    [
        *("\\boxed{", "\\fbox{", "}", "{", "\\frac", "1/2", "B", " or ", "The answer is ", "$"),
        *("<answer>", "</answer>", "<information>", "</tool_response>", "<think>", "<|im_end|>"),
        *(
            "```",
            "```python\n",
            "\n```\n",
            "~~~",
            "\n",
            "   ",
            "print(1)",
            "\r\n",
            "\x00",
            "\ud800",
        ),
        *("[", '{"', "1,", "Paris", "yes", "no", "3.14", "%", "٣", "\u202e"),
    ]
)
texts = st.one_of(
    st.text(max_size=200),
    st.lists(st.one_of(pieces, st.text(max_size=10)), max_size=40).map("".join),
    st.tuples(pieces, st.integers(1, 2000)).map(lambda pair: pair[0] * pair[1]),
)
wrapped = st.one_of(
    texts,
    texts.map("\\boxed{{{}}}".format),
    texts.map("<answer>{}</answer>".format),
    texts.map("```python\n{}\n```".format),
)
golds = st.one_of(
    texts,
    st.sampled_from(["7", "B", "Paris", TESTS, '{"inputs": ["1"], "outputs": ["1"]}']),
    st.none(),
    st.floats(),
    st.lists(texts, max_size=2),
    st.dictionaries(st.sampled_from(["target", "tests", "inputs", "outputs"]), texts),
)
sources = st.one_of(st.sampled_from([*TABLE, "openai/gsm8k", "other"]), texts, st.none())
relaxed = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def stand_ins(monkeypatch):
    """The check of an answer, and the run of a program, say yes and no in turn."""

    class Pool:
        def check(self, golds, answer, limit_s):
            assert len(answer) <= math_answer.MAX_ANSWER_CHARS
            return Verdict(len(answer) % 2 == 0)

    def run(sandbox, program, inputs, judge, limit_s):
        for number in range(len(inputs)):
            judge(number, program.source[number:].encode("utf-8", "replace"))
        return runner.End(timeout=len(program.source) % 3 == 0)

    monkeypatch.setattr(math_answer, "shared_pool", lambda workers: Pool())
    monkeypatch.setattr(code_tests, "choose", lambda wanted: wanted)
    monkeypatch.setattr(code_tests, "launch", lambda way, memory_bytes: way)
    monkeypatch.setattr(runner, "run", run)
    scorer = types.ModuleType("verl.utils.reward_score")
    scorer.default_compute_score = lambda source, text, *_: {"score": len(text), "pred": text}
    for module in (types.ModuleType("verl"), types.ModuleType("verl.utils"), scorer):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("name", NAMES)
@given(source=sources, solution=wrapped, gold=golds, bonus=st.floats(0, 1))
@relaxed
def test_any_text_for_any_reward(name, source, solution, gold, bonus):
    options = {"format_bonus": bonus, "lenient": bonus > 0.5, "partial": bonus > 0.5}
    if name == "dispatch":
        options = dict.fromkeys(("math_answer", "code_tests", "search_qa"), options)
    started = time.monotonic()
    reward = load(name)(source, solution, gold, {"truncated": False}, **options)
    assert time.monotonic() - started < LIMIT_S
    check_shape(reward, ["score", "acc", *PARTS[name], *ENDS])


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "unit",
    ["```", "```\n", "~~~ ", "`", "```python\n", "x```", "\\boxed{", "<answer>", "1", " ", "\n"],
)
def test_long_texts_of_one_piece(name, unit):
    text = unit * (200_000 // len(unit))
    started = time.monotonic()
    for solution in (text, f"```python\n{text}\n```", f"\\boxed{{{text}}}", f"<answer>{text}"):
        reward = load(name)("apps", solution, TESTS)
        check_shape(reward, ["score", "acc", *PARTS[name], *ENDS])
    assert time.monotonic() - started < LIMIT_S


@given(wrapped)
@relaxed
def test_blocks(text):
    blocks = python_blocks(text)
    if blocks.last is not None:
        lines = {line.strip() for line in text.replace("\r\n", "\n").split("\n")}
        assert {line.strip() for line in blocks.last.split("\n")} <= lines | {""}
        compile(prelude(blocks.last), "prelude", "exec")


@given(st.text(st.characters(exclude_characters="`\r"), max_size=200))
@relaxed
def test_a_block_is_found_as_it_was_written(source):
    assert python_blocks(f"text\n```python\n{source}\n```\ntext") == (source, False)


@given(golds, st.one_of(st.none(), texts, st.dictionaries(st.just("fn_name"), texts)))
@relaxed
def test_any_ground_truth_is_read_or_refused(gold, extra_info):
    try:
        suite = read_cases(gold, extra_info)
    except GroundTruthError:
        return
    assert suite.cases
    assert read_cases(canonical_json(suite)) == suite


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(values, st.binary(max_size=200))
@relaxed
def test_a_value_equals_itself_and_any_bytes_can_be_compared(value, data):
    # Infinity has no sensible distance from itself, and is no JSON.
    if "Infinity" not in json.dumps(value):
        assert code_tests.same_value(json.dumps(value).encode(), value)
    assert code_tests.same_value(data, value) in (True, False)


@given(texts, texts, st.binary(max_size=200))
@relaxed
def test_an_output_equals_itself_and_any_bytes_can_be_compared(text, other, data):
    encoded = text.encode("utf-8", "replace")
    assert code_tests.same_output(encoded, encoded.decode())
    assert code_tests.same_output(encoded, other) in (True, False)
    assert code_tests.same_output(data, text) in (True, False)


@pytest.mark.parametrize("unit", ["1", "1.", "-", "1e9", "1 ", "[", "[[],", "9" * 5000 + " ", "\n"])
def test_hostile_output_is_compared_quickly(unit):
    data = (unit * (1_000_000 // len(unit))).encode()
    started = time.monotonic()
    for expected in ("7", "7.5", "1 2 3.5", data.decode()[: len(data) // 4], data.decode()):
        code_tests.same_output(data, expected)
        code_tests.same_output(data, expected + "x")
    for value in (7, [7], [[]] * 10):
        assert not code_tests.same_value(data, value)
    assert time.monotonic() - started < LIMIT_S
