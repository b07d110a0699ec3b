"""The table of data sources: complete, as documented, and without a way to code that runs text."""

import ast
import importlib
import inspect
import re

import pytest

from tests.reward_fns.code_rows import fenced, stdin_tests
from tests.reward_fns.loading import ROOT, load
from verl_msgrpo.rewards.sources import (
    BY_VERL,
    BY_VERL_PREFIX,
    REWARDS,
    TABLE,
    is_scored_by_verl,
    reward_name_of,
)


def verl_scorers():
    return pytest.importorskip("verl.utils.reward_score")


def named_by_verl():
    """The data sources that verl's own scorer compares with."""
    tree = ast.parse(inspect.getsource(verl_scorers().default_compute_score))
    compared = [
        text.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]
    assert len(compared) > 20
    return compared


def test_look_up():
    assert reward_name_of("math_dapo") == "math_answer"
    assert reward_name_of("openai/gsm8k") is None
    assert reward_name_of("nobody/knows") is None
    assert is_scored_by_verl("openai/gsm8k")
    assert is_scored_by_verl("aime2025")
    assert not is_scored_by_verl("nobody/knows")


def test_every_source_has_one_reward():
    assert set(TABLE.values()) == set(REWARDS)
    assert not TABLE.keys() & BY_VERL.keys()
    assert not [source for source in TABLE if source.startswith(BY_VERL_PREFIX)]
    for name in REWARDS:
        assert (ROOT / "reward_fns" / f"{name}.py").exists()


def test_every_source_that_verl_names_is_known():
    unknown = [s for s in named_by_verl() if not (reward_name_of(s) or is_scored_by_verl(s))]
    assert unknown == []


@pytest.mark.parametrize("source", [*BY_VERL, "aime2025"])
def test_verl_scores_by_the_module_that_the_table_names(source, monkeypatch):
    scorers = verl_scorers()
    module = importlib.import_module(f"{scorers.__name__}.{BY_VERL.get(source, 'math_dapo')}")
    monkeypatch.setattr(module, "compute_score", lambda *_, **__: 0.125)
    assert scorers.default_compute_score(source, "text", {"target": ["7"]}) == 0.125


@pytest.mark.parametrize("module", sorted(set(BY_VERL.values())))
def test_verl_s_modules_evaluate_no_text(module):
    """No call of what evaluates, and no import but of what cannot."""
    name = f"{verl_scorers().__name__}.{module}"
    tree = ast.parse(inspect.getsource(importlib.import_module(name)))
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name)
    }
    assert not calls & {"eval", "exec", "compile", "parse_expr", "sympify", "__import__"}
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"re", "string", "random", "typing"}


PROBES = [
    r"\boxed{[2,open('TRACE','w'),\pi]}",
    r"\boxed{[[1,open('TRACE','w')],[2,3]]}",
    r"\boxed{Matrix([1,open('TRACE','w')])}",
    r"\boxed{open('TRACE','w')+1}",
    r"Answer: [2,open('TRACE','w'),\pi]",
    r"#### open('TRACE','w')",
    r"<think>1</think> \boxed{open('TRACE','w').name}",
    r"<answer>open('TRACE','w')</answer>",
    fenced("open('TRACE','w')"),  # there is another file of that name in the sandbox
]
GOLDS = ["7", r"[2,3,\pi]", r"\begin{pmatrix}1\\2\end{pmatrix}"]


def test_the_probe_leaves_a_trace_where_text_is_evaluated(tmp_path, monkeypatch):
    """verl's prime_math, which no source of ours reaches."""
    pytest.importorskip("pylatexenc")
    prime_math = importlib.import_module(f"{verl_scorers().__name__}.prime_math")
    monkeypatch.chdir(tmp_path)
    prime_math.compute_score(PROBES[0].replace("TRACE", "trace7"), GOLDS[1])
    assert (tmp_path / "trace7").exists()


@pytest.mark.parametrize("source", [*TABLE, *BY_VERL, "aime2025", "nobody/knows"])
def test_no_source_reaches_code_that_evaluates_text(source, tmp_path_factory):
    pytest.importorskip("math_verify")
    compute_score = load("dispatch")
    trace = tmp_path_factory.mktemp("trace") / "trace7"
    golds = GOLDS
    if reward_name_of(source) == "multiple_choice":
        golds = ["B"]
    elif reward_name_of(source) == "code_tests":
        golds = [stdin_tests(("1", "1"))]
    elif source.startswith("searchR1"):
        golds = [{"target": [gold]} for gold in GOLDS]
    for gold in golds:
        for probe in PROBES:
            compute_score(source, probe.replace("TRACE", str(trace)), gold, {})
    assert not trace.exists()


def test_the_page_of_dispatch_lists_the_table():
    text = ast.get_docstring(ast.parse((ROOT / "reward_fns/dispatch.py").read_text()))
    table = text.partition("task\n")[2].partition("\n\n")[0]
    listed, sources = {}, []
    for line in table.splitlines():
        names, _, reward = line.partition("  ")
        sources += [name for name in re.split(r",?\s+|,$", names) if name]
        if reward.strip():
            listed.setdefault(reward.strip(), []).extend(sources)
            sources = []
    expected = {name: [s for s in TABLE if TABLE[s] == name] for name in REWARDS}
    expected["verl's own scorer"] = [*BY_VERL, f"{BY_VERL_PREFIX}*"]
    assert {name: sorted(found) for name, found in listed.items() if name in expected} == {
        name: sorted(found) for name, found in expected.items()
    }
