import pickle
import sys
import types

import numpy as np
import pytest

from tests.reward_fns.code_rows import SUM, fenced, skip_without, stdin_tests
from tests.reward_fns.loading import BROKEN_GOLDS, BROKEN_SOLUTIONS, check_shape, load

pytest.importorskip("math_verify")
KEYS = ["score", "acc", "em", "f1", "sub_em", "hedged", "passed"]
KEYS += ["format_ok", "truncated", "timeout", "error", "pred"]
ADD = stdin_tests(("1 2", "3"), ("3 4", "8"))
compute_score = load("dispatch")


def dispatch(source, solution, gold, extra_info=None, **options):
    reward = compute_score(source, solution, gold, extra_info, **options)
    check_shape(reward, KEYS)
    return reward


@pytest.fixture
def verl_scorer(monkeypatch):
    """A stand-in for verl's own scorer: notes its calls, gives what it is told to."""
    calls, module = [], types.ModuleType("verl.utils.reward_score")
    module.result = 1.0

    def default_compute_score(*arguments):
        calls.append(arguments)
        if isinstance(module.result, Exception):
            raise module.result
        return module.result

    module.default_compute_score, module.calls = default_compute_score, calls
    for name in ("verl", "verl.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "verl.utils.reward_score", module)
    return module


@pytest.mark.parametrize("source", ["HuggingFaceH4/aime_2024", "math_dapo"])
def test_mathematics(source):
    assert dispatch(source, r"\boxed{73}", "73")["score"] == 1
    assert dispatch("BytedTsinghua-SIA/DAPO-Math-17k", r"\boxed{1/2}", "0.5")["acc"] == 1
    assert dispatch(source, r"\boxed{74}", "73")["score"] == 0


def test_multiple_choice():
    row = {"num_options": 4}
    assert dispatch("GBaker/MedQA-USMLE-4-options", r"\boxed{D}", "D", row)["score"] == 1
    reward = dispatch("INK-USC/riddle_sense", r"\boxed{A or B}", "A", {"num_options": 5})
    assert (reward["score"], reward["hedged"], reward["pred"]) == (0, 1, "A or B")


@pytest.mark.parametrize(
    "source", ["hotpotqa/hotpot_qa", "nq", "hotpotqa", "searchR1_nq", "searchR1_hotpotqa"]
)
def test_search(source):
    gold = {"target": np.array(["Paris"])}
    assert dispatch(source, "<answer>Paris</answer>", gold)["em"] == 1
    assert dispatch(source, "<answer>Paris, France</answer>", gold)["f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "source", ["livecodebench/code_generation_lite", "codecontests", "apps", "codeforces", "taco"]
)
def test_code_is_never_left_to_verl(source, verl_scorer):
    skip_without("auto")
    reward = dispatch(source, fenced(SUM), ADD)
    assert (reward["score"], reward["passed"], reward["format_ok"]) == (0, 0.5, 1)
    assert verl_scorer.calls == []


def test_options_of_each_task():
    half, row = "<answer>Paris, France</answer>", r"\boxed{C}"
    options = {"search_qa": {"metric": "f1"}, "multiple_choice": {"format_bonus": 0.25}}
    assert dispatch("nq", half, "Paris", **options)["score"] == pytest.approx(2 / 3)
    assert dispatch("INK-USC/riddle_sense", row, "A", **options)["score"] == 0.25
    skip_without("auto")
    partial = {"code_tests": {"partial": True}}
    assert dispatch("apps", fenced(SUM), ADD, **options, **partial)["score"] == 0.5


def test_options_from_hydra():
    config = pytest.importorskip("omegaconf").OmegaConf.create(
        {"search_qa": {"observation_tags": ["result"]}, "tasks": {"my/own.set": "search_qa"}}
    )
    text = "<result><answer>Paris</answer></result>"
    assert dispatch("my/own.set", text, "Paris", **config)["score"] == 0
    assert dispatch("my/own.set", "<answer>Paris</answer>", "Paris", **config)["score"] == 1


def test_a_task_that_does_not_exist_or_broken_options():
    assert dispatch("x", "a", "b", tasks={"x": "os"})["error"] == 1
    assert dispatch("nq", "<answer>a</answer>", "a", search_qa="em")["error"] == 1
    assert dispatch("nq", "<answer>a</answer>", "a", search_qa={"metric": "none"})["error"] == 1


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (1.0, {"score": 1, "acc": 1}),
        (0.5, {"score": 0.5}),
        (True, {"score": 1, "acc": 1}),
        (-1.0, {"score": 0}),
        (7.0, {"score": 1, "acc": 1}),
        (np.float32(1), {"score": 1, "acc": 1}),
        ({"score": -1.0, "acc": False, "pred": "5"}, {"pred": "5"}),
        ({"score": 1.0, "acc": True, "pred": None}, {"score": 1, "acc": 1}),
        ({"score": 0.4, "f1": 0.6, "unknown": 3}, {"score": 0.4, "f1": 0.6}),
        ({"acc": 1}, {"error": 1}),
        ({"score": None}, {"error": 1}),
        ({"score": float("nan")}, {"error": 1}),
        (float("nan"), {"error": 1}),
        ("text", {"error": 1}),
        (NotImplementedError("no such set"), {"error": 1}),
    ],
)
def test_the_result_of_verl_s_own_scorer(result, expected, verl_scorer):
    verl_scorer.result = result
    empty = {**dict.fromkeys(KEYS, 0.0), "pred": ""}
    assert dispatch("openai/gsm8k", "#### 7", "7", {"index": 1}) == empty | expected
    assert verl_scorer.calls == [("openai/gsm8k", "#### 7", "7", {"index": 1})]


def test_a_source_that_nobody_knows_is_an_error_and_verl_is_not_asked(verl_scorer, caplog):
    assert dispatch("no/such.set", "7", "7")["error"] == 1
    assert verl_scorer.calls == []


@pytest.mark.parametrize("source", ["numina_olympiads", "hiyouga/geometry3k"])
def test_sources_whose_scorer_at_verl_evaluates_text_have_ours(source, verl_scorer):
    assert dispatch(source, r"So $\boxed{\frac12}$.", "0.5")["score"] == 1
    assert verl_scorer.calls == []


def test_verl_s_own_scorer_gets_the_model_s_text_alone(verl_scorer):
    dispatch("openai/gsm8k", "<tool_response>#### 7</tool_response> I do not know", "7")
    assert verl_scorer.calls[0][1].strip() == "I do not know"


def test_verl_s_own_scorer_itself():
    pytest.importorskip("verl.utils.reward_score")
    assert dispatch("openai/gsm8k", "So\n#### 7", "7")["score"] == 1
    assert dispatch("openai/gsm8k", "So\n#### 8", "7")["score"] == 0
    reward = dispatch("math_dapo_reasoning", "Answer: 8", "7")
    assert (reward["score"], reward["acc"], reward["pred"]) == (0, 0, "8")
    assert dispatch("no/such.set", "7", "7")["error"] == 1


def test_same_keys_and_never_an_exception(verl_scorer):
    verl_scorer.result = 0.0
    sources = ["math_dapo", "INK-USC/riddle_sense", "apps", "nq", "openai/gsm8k", "other"]
    sources += [None, 7, ["nq"], b"nq"]
    for source in sources:
        for gold in BROKEN_GOLDS:
            assert dispatch(source, "<answer>x</answer> \\boxed{x}", gold)["score"] == 0
        for solution in BROKEN_SOLUTIONS:
            assert dispatch(source, solution, "7")["score"] == 0


def test_a_mixed_batch_can_be_collated(verl_scorer):
    """As verl does it: one array for each key of the first row."""
    verl_scorer.result = {"score": 1.0}
    rows = [
        ("nq", "<answer>Paris</answer>", "Paris"),
        ("math_dapo", r"\boxed{7}", "7"),
        ("INK-USC/riddle_sense", r"\boxed{B}", "B"),
        ("apps", "no program", ADD),
        ("openai/gsm8k", "#### 7", "7"),
        ("apps", fenced(SUM), "broken"),
    ]
    rewards = [dispatch(*row) for row in rows]
    columns = {key: np.array([reward[key] for reward in rewards]) for key in rewards[0]}
    assert columns["acc"].tolist() == [1, 1, 1, 0, 1, 0]
    assert columns["error"].tolist() == [0, 0, 0, 0, 0, 1]
    assert all(column.dtype == float for key, column in columns.items() if key != "pred")


def test_picklable():
    assert pickle.loads(pickle.dumps(compute_score)) is compute_score
