import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reward_fns.loading import BROKEN_GOLDS, BROKEN_SOLUTIONS, check_shape, load

KEYS = ["score", "acc", "hedged", "format_ok", "truncated", "timeout", "error", "pred"]
FOUR = {"num_options": 4}
compute_score = load("multiple_choice")


def mcq(solution, gold, extra_info=FOUR, **options):
    reward = compute_score("riddle_sense", solution, gold, extra_info, **options)
    check_shape(reward, KEYS)
    return reward


@pytest.mark.parametrize(
    ("gold", "solution", "expected"),
    [
        pytest.param("B", "The answer is B because a car moves.", 1, id="article-is-no-vote"),
        pytest.param(
            "B", "The answer is B. Note that A is a common distractor.", 1, id="distractor-named"
        ),
        pytest.param("C", "Antwort:\n\nAntwort: C", 1, id="german"),
        pytest.param("D", r"\boxed{C} … \boxed{D}", 1, id="last-box"),
        pytest.param("A", r"\boxed{A or B or C}", 0, id="hedging-in-a-box"),
        pytest.param("A", "<answer>A, B</answer>", 0, id="hedging-in-tags"),
        pytest.param("A", "<answer></answer>", 0, id="empty-tag"),
        pytest.param("A", "", 0, id="empty"),
        pytest.param("A", "A", 1, id="bare-letter"),
        pytest.param(
            "B", "I first thought answer: A. On reflection, answer: B", 1, id="last-statement"
        ),
    ],
)
def test_cases(gold, solution, expected):
    assert mcq(solution, gold)["acc"] == mcq(solution, gold)["score"] == expected


def test_the_last_box_of_five_options():
    solution = r"\boxed{C} … \boxed{E}"
    assert mcq(solution, "E", {"num_options": 5})["score"] == 1
    assert mcq(solution, "E", {})["score"] == 1


RIGHT = [
    r"\boxed{\text{B}}",
    r"\boxed{\textbf{(B)}}",
    r"so $\boxed{\text{(B) a car}}$.",
    r"\fbox{B}",
    "<answer>b</answer>",
    "<answer>(b)</answer>",
    "<answer>Option B</answer>",
    "<answer>The answer is B</answer>",
    r"<answer>\boxed{B}</answer>",
    "<answer>B. Vitamin A deficiency</answer>",
    "<answer>B. Hepatitis A or C.</answer>",
    "<answer>B: a car</answer>",
    "<answer>B, not A</answer>",
    "<answer>Ｂ</answer>",
    "**Answer: B**",
    "**Final Answer:** **B**",
    "**Answer**: (B) a car",
    "Answer - B",
    "The correct option is B.",
    r"the answer is \textbf{B}",
    "The best answer would be (B).",
    "The answer is B, A is a distractor",
    "The answer is B and A is wrong",
    "The answer is A? No, B is the correct answer.",
    "答案是B",
    "Long text.\n\n**B**",
    "B. car",
    "B) car",
    "<answer>A</answer> wait <answer>B</answer>",
    "<tool_response>the answer is C</tool_response>\nB",
]
WRONG = [
    "The answer is A or B",
    "The answer is A, B, or C",
    "The answer is A and B.",
    "The answer is either A or B",
    "The answer is not B",
    "The answer is a B-movie",
    "The answer is B. The answer could also be A",
    "<answer>(A) or (B)</answer>",
    "<answer>B. cat or A. dog</answer>",
    "<answer>B) cat, A) dog</answer>",
    "<answer>B A</answer>",
    "<answer>B\nA</answer>",
    "<answer>B and/or A</answer>",
    "<answer>B (or A)</answer>",
    "<answer>B? A?</answer>",
    "<answer>B;A</answer>",
    "<answer>B. A. C. D.</answer>",
    "<answer>BA</answer>",
    r"\boxed{B|A}",
    r"\boxed{B,\ A}",
    r"\boxed{B} or \boxed{A}",
    "<answer>B</answer> <answer></answer>",
    r"\boxed{",
    r"The answer is B, so \boxed{",
    "<answer>B",
    "A. x\nB. y\nC. z\nD. B",
    "<tool_response>The answer is B</tool_response>",
    "<information><answer>B</answer></information>",
    r"Mark it with \boxed",
]


@pytest.mark.parametrize("solution", RIGHT)
def test_right(solution):
    assert mcq(solution, "B")["score"] == 1


@pytest.mark.parametrize("solution", WRONG)
def test_wrong(solution):
    assert mcq(solution, "B")["score"] == 0


def test_a_is_a_letter_and_an_article():
    assert mcq("The answer is A because it moves", "A")["acc"] == 1
    assert mcq("<answer>A because it moves</answer>", "A")["acc"] == 1
    assert mcq("The answer is a car", "A")["acc"] == 0
    assert mcq("<answer>A car</answer>", "A")["acc"] == 0


@pytest.mark.parametrize(
    ("extra_info", "options"),
    [
        ({"num_options": 3}, 3),
        ({"options": {"A": "x", "B": "y", "C": "z"}}, 3),
        ({"options": {"A": "x", "B": "y", "C": "z", "D": None}}, 3),
        ({"choices": {"label": ["A", "B", "C"], "text": ["x", "y", "z"]}}, 3),
        ({"choices": {"label": np.array(["A", "B", "C"]), "text": ["x", "y", "z"]}}, 3),
        ({"options": ["x", "y", "z"]}, 3),
        ({"options": np.array(["x", "y", "z"])}, 3),
    ],
)
def test_options_come_from_the_row(extra_info, options):
    last, beyond = chr(ord("A") + options - 1), chr(ord("A") + options)
    assert mcq(f"<answer>{last}</answer>", last, extra_info)["format_ok"] == 1
    reward = mcq(f"<answer>{beyond}</answer>", last, extra_info)
    assert (reward["acc"], reward["format_ok"], reward["pred"]) == (0, 0, beyond)
    assert mcq(f"<answer>{beyond}</answer>", beyond, extra_info)["error"] == 1


def test_format_and_weights():
    assert mcq("<answer>A</answer>", "B", format_bonus=0.1)["score"] == pytest.approx(0.1)
    assert mcq("The answer is B", "B", format_bonus=0.1)["score"] == pytest.approx(0.9)
    assert mcq("<answer>A or B</answer>", "B", format_bonus=0.1) == {
        **dict.fromkeys(KEYS, 0.0),
        "hedged": 1.0,
        "pred": "A or B",
    }
    assert mcq("The answer is B", "B", statements=False)["score"] == 0
    assert mcq(r"\boxed{B", "B")["truncated"] == 1


def test_the_gold_may_be_written_in_any_way():
    for gold in ("B", "b", "(B)", ["B"], np.array(["B"]), {"target": "B"}):
        assert mcq("<answer>B</answer>", gold)["score"] == 1


def test_same_keys_and_never_an_exception():
    for gold in [*BROKEN_GOLDS, "car", ["A", "B"], 1]:
        assert mcq("<answer>A</answer>", gold)["error"] == 1
    for solution in BROKEN_SOLUTIONS:
        assert mcq(solution, "A")["score"] == 0
    for extra_info in (None, {}, 3, {"num_options": "x"}, {"options": 3}):
        check_shape(compute_score("x", "A", "A", extra_info, unknown=1), KEYS)


pieces = st.sampled_from(
    ["<answer>", "</answer>", "\\boxed{", "}", "The answer is ", "A", "B", " or ", ". ", "(", "\n"]
)
texts = st.one_of(
    st.text(max_size=300), st.lists(st.one_of(pieces, st.text()), max_size=30).map("".join)
)


@settings(max_examples=200, deadline=1000)
@given(texts, st.one_of(st.sampled_from("ABCDE"), texts, st.none()))
def test_any_text_scores_between_zero_and_one(solution, gold):
    mcq(solution, gold, format_bonus=0.5)


@settings(max_examples=200, deadline=1000)
@given(texts)
def test_at_most_one_option_is_right(solution):
    assert sum(mcq(solution, gold)["acc"] for gold in "ABCD") <= 1


@pytest.mark.parametrize(
    "unit",
    [
        "answer is ",
        "answer: ",
        "answer:" + " " * 50,
        "\\text{",
        "\\boxed{",
        "A or ",
        "A, ",
        "(",
        "\\",
    ],
)
def test_long_hostile_texts_end_quickly(unit):
    text = unit * (1_000_000 // len(unit))
    check_shape(compute_score("x", text, "A"), KEYS)
    check_shape(compute_score("x", f"<answer>{text}</answer>", "A"), KEYS)
