import asyncio
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reward_fns.loading import BROKEN_GOLDS, BROKEN_SOLUTIONS, check_shape, load

pytest.importorskip("math_verify")
KEYS = ["score", "acc", "format_ok", "truncated", "timeout", "error", "pred"]
# A response that takes longer than any limit; each also asks for more memory than there is.
ENDLESS = [r"\boxed{9^{9^{9^{9}}}}", r"\boxed{(10^{9})!}"]
compute_score = load("math_answer")


def math(solution, gold, extra_info=None, **options):
    reward = compute_score("aime", solution, gold, extra_info, **options)
    check_shape(reward, KEYS)
    return reward


def case(name, gold, solution, expected):
    return pytest.param(gold, solution, expected, id=name)


@pytest.mark.parametrize(
    ("gold", "solution", "expected"),
    [
        case("frac", "1/3", r"\boxed{\frac13}", 1),
        case("dfrac", r"\frac{2}{3}", r"\boxed{\dfrac{2}{3}}", 1),
        case("repeated-box", "840", r"… \boxed{840}., but … **Final Answer** \boxed{840}", 1),
        case("percent-word", r"28\%", r"\boxed{28 percent}", 1),
        case("percent-missing", r"28\%", r"\boxed{28}", 1),
        case("percent-as-share", r"28\%", r"\boxed{0.28}", 1),
        case("first-of-two-boxes", "5", r"First \boxed{5}. No: \boxed{7}", 0),
        case("last-of-two-boxes", "7", r"First \boxed{5}. No: \boxed{7}", 1),
        case("tiny-numbers-differ", r"\frac{1}{2^{99}}", r"\boxed{\frac{1}{2^{98}}}", 0),
        case("relation-for-interval", r"(-\infty,3)", r"\boxed{x<3}", 1),
        case("interval-for-relation", "x<3", r"\boxed{(-\infty,3)}", 1),
        case("tuple-for-list", "0,1", r"\boxed{(0,1)}", 1),
        case("list", "0,1", r"\boxed{0,1}", 1),
        case("comma-dropped", "0,1", r"\boxed{01}", 0),
        case("comma-is-no-point", "0,1", r"\boxed{0.1}", 0),
        case("thousands", "1000", r"\boxed{1,000}", 1),
        case("mixed-number-without-box", "2", "The answer is 2 2/3", 0),
        case("mixed-number", "8/3", r"\boxed{2 2/3}", 1),
        case("fbox", "42", r"\fbox{42}", 1),
        case("number-in-the-text", "42", "I tried 42 but do not know", 0),
        case("box-in-observation", "42", r"<tool_response>\boxed{42}</tool_response> Hm.", 0),
        case("bold-answer", "73", "✅ Final Answer: **73**", 0),
        case("unit", "5", r"\boxed{5\text{ cm}}", 1),
        case("assignment", "5", r"\boxed{x=5}", 1),
        case("degrees", "90", r"\boxed{90^\circ}", 1),
        case("six-places", r"\frac13", r"\boxed{0.333333}", 1),
        case("two-places", r"\frac13", r"\boxed{0.33}", 0),
        case("empty-box", "5", r"\boxed{}", 0),
        case("open-box", "5", r"\boxed{5", 0),
        case("empty", "5", "", 0),
        case("command-alone", "5", r"Mark your solution with \boxed", 0),
        case("text-in-a-box", "B", r"\boxed{\text{B}}", 1),
    ],
)
def test_cases(gold, solution, expected):
    reward = math(solution, gold)
    assert (reward["acc"], reward["score"]) == (expected, expected)
    assert reward["error"] == reward["timeout"] == 0


# (gold, content of the box, expected): the same kinds, and what must not be lost over them.
EQUAL = [
    ("4/3", "2 2/3", 0),
    ("8/3", r"2\frac{2}{3}", 1),
    ("-8/3", "-2 2/3", 1),
    ("8/3", "2⅔", 1),
    ("0.5", r"\frac12", 1),
    (r"\frac13", "0.333334", 0),
    (r"\frac13", "0.3333333333333333333333", 1),
    ("0.333333", r"\frac13", 1),
    (r"\sqrt2", "1.41421356", 1),
    (r"\sqrt2", "1.414", 0),
    (r"\pi", "3.141593", 1),
    ("3.14", r"\pi", 0),
    ("1.2345600012", "1.234560", 1),  # a zero at the end is a place too
    ("5", "5.0000003", 0),
    (r"\frac{1}{2^{99}}", "0.000000", 0),
    (r"\frac{1}{2^{99}}", "2^{-99}", 1),
    (r"\frac{1+\sqrt5}{2}", r"\frac{1+\sqrt5}{2}+10^{-30}", 0),
    (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2", 1),
    (r"(\frac13, \frac{1}{2^{99}})", r"(0.333333, \frac{1}{2^{98}})", 0),
    (r"(\frac13, 2)", "(0.333333, 2)", 1),
    (r"\{\frac13, 2\}", r"\{2, 0.333333\}", 1),
    (r"\begin{pmatrix}1\\ \frac13\end{pmatrix}", r"\begin{pmatrix}1\\0.333333\end{pmatrix}", 1),
    (r"\begin{pmatrix}1\\ \frac13\end{pmatrix}", r"\begin{pmatrix}1\\0.33\end{pmatrix}", 0),
    ("0,1", "1,0", 1),
    ("(0,1)", "(1,0)", 0),
    ("(0,1)", "[0,1]", 0),
    ("12", "1,2", 0),
    ("1,2,3", "1,2", 0),
    ("7", r"7 \text{ or } 8", 0),
    (r"28\%", "29", 0),
    (r"\frac18", r"12.5\%", 1),
    (r"\frac13", r"33.3333\%", 1),
    ("1500", "1.5e3", 1),
    ("1000", r"1\,000", 1),
    ("3t", "3", 0),
    ("2ab", "2", 0),
    ("2ab", "2ba", 1),
    (r"5\text{ cm}", "5", 1),
    (r"5\text{ cm}", r"5\text{ km}", 0),
    (r"5\text{ m}", r"5\text{ meters}", 1),
    ("12_5", "12_7", 0),
    ("x^2+2x+1", "(x+1)^2", 1),
    ("0.5x+1", r"\frac{1}{2}x+1", 1),
    ("y=2x+1", "y=1+2x", 1),
    ("10,11,12", "12, 10, 11", 1),
    (r"\infty", r"-\infty", 0),
    ("073", "73", 1),
    (r"\text{no solution}", r"\text{No solution}", 1),
    ("7", r"\frac{0}{0}", 0),
    ("5", r"\text{I think } 5 \text{ or so}", 0),
]


@pytest.mark.parametrize(("gold", "content", "expected"), EQUAL)
def test_equality(gold, content, expected):
    assert math(f"So it is $\\boxed{{{content}}}$.", gold)["acc"] == expected


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        (r"\boxed{5} and \boxed{7}", "7"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {137}", "137"),
        (r"\\boxed{5}", "5"),
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),
        (r"\boxed{5} then \boxed{7", "5"),
        (r"x \boxed{5} } }", "5"),
        (r"<think>\boxed{1}</think> \boxed{2}", "2"),
        (r"\boxed{1}<tool_call>{}</tool_call><tool_response>\boxed{2}</tool_response>", ""),
        (r"<information>\boxed{1}", ""),
    ],
)
def test_the_box_is_recorded_whole(solution, expected):
    assert math(solution, "no such answer")["pred"] == expected


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        (r"so $\boxed 5$", "5"),
        (r"\boxed5", "5"),
        (r"$\boxed 1,200$", "1,200"),
        (r"$\boxed-3$", "-3"),
        (r"$\boxed\frac12$.", r"\frac12"),
        (r"$\boxed \frac{1}{2}$", r"\frac{1}{2}"),
        (r"$\boxed\pi$", r"\pi"),
        (r"$\boxed A$", "A"),
        (r"\boxed{7} and \boxed 5.", "5"),
        (r"write \boxed and then 5", ""),
        (r"$\boxed 2^{10}$", ""),  # TeX would put the 2 alone in the box
        (r"\boxedfive5", ""),
    ],
)
def test_a_box_without_braces(solution, expected):
    assert math(solution, "no such answer")["pred"] == expected


@pytest.mark.parametrize(
    "gold",
    [r"either \boxed{5} or \boxed{7}", r"\boxed{5}, \boxed 7", r"\langle 7,\frac{1}{2}\rangle"],
)
def test_a_ground_truth_that_is_no_single_value_is_an_error(gold):
    for said in ("5", "7", r"\frac{1}{2}"):
        reward = math(rf"\boxed{{{said}}}", gold)
        assert (reward["acc"], reward["error"]) == (0, 1)


def test_a_ground_truth_that_says_the_same_twice_is_one_value():
    assert math(r"\boxed{5}", r"so \boxed{5}. **Final Answer** \boxed{5}")["acc"] == 1


def test_truncated():
    assert math(r"\boxed{5", "5")["truncated"] == 1
    assert math("<think>so", "5")["truncated"] == 1
    assert math(r"\boxed{5", "5", {"truncated": False})["format_ok"] == 0
    assert math(r"\boxed{5}", "5")["truncated"] == 0


@pytest.mark.parametrize(
    ("gold", "solution", "expected"),
    [
        case("bold-answer", "73", "✅ Final Answer: **73**", 1),
        case("mixed-number-without-box", "2", "The answer is 2 2/3", 0),
        case("mixed-number", "8/3", "The answer is 2 2/3", 1),
        case("number-in-the-text", "42", "I tried 42 but do not know", 0),
        case("latex", "1/2", r"The final answer is \(\frac{1}{2}\).", 1),
        case("clause", "42", "the answer is 42 because 3 of them", 1),
        case("last", "42", "The answer is 7. No, the answer is 42.", 1),
        case("box-first", "42", r"\boxed{7} The answer is 42.", 0),
        case("open-box", "42", r"The answer is 42, \boxed{4", 0),
        case("decimal", "7/2", "Answer: 3.5", 1),
    ],
)
def test_lenient(gold, solution, expected):
    reward = math(solution, gold, lenient=True)
    assert reward["acc"] == expected
    assert reward["format_ok"] == (r"\boxed{7}" in solution)


def test_weights_and_forms_of_the_gold():
    assert math(r"\boxed{5}", "7", format_bonus=0.1)["score"] == pytest.approx(0.1)
    assert math(r"\boxed{7}", "7", format_bonus=0.1)["score"] == 1
    assert math("7", "7", format_bonus=0.1)["score"] == 0
    golds = ["7", 7, 7.0, np.int64(7), "$7$", r"\boxed{7}", ["x", "7"], {"target": ["7"]}]
    assert [math(r"\boxed{7}", gold)["score"] for gold in golds] == [1] * len(golds)


def test_from_a_thread_and_inside_a_running_loop():
    found = []
    solution = r"\boxed{\frac12}"
    thread = threading.Thread(target=lambda: found.append(math(solution, "1/2")))
    thread.start()
    thread.join()

    async def inside():
        return math(solution, "1/2")

    assert [reward["score"] for reward in (*found, asyncio.run(inside()))] == [1.0, 1.0]


def test_endless_algebra_is_stopped_and_the_pool_stays_healthy():
    for poison in ENDLESS * 8:
        reward = math(poison, "7", timeout_s=0.2)
        assert reward["score"] == 0
        assert reward["timeout"] + reward["error"] == 1
    nested = "\\boxed{" + "(" * 3000 + "7" + ")" * 3000 + "}"
    assert math(nested, "7")["score"] == 0
    assert math(r"\boxed{\frac12}", "1/2")["score"] == 1


def test_same_keys_and_never_an_exception():
    for gold in BROKEN_GOLDS[:-1]:
        assert math(r"\boxed{5}", gold)["error"] == 1
    for solution in [*BROKEN_SOLUTIONS, "\\boxed{\ud800}", "\\boxed{\x00}"]:
        assert math(solution, "5/7")["score"] == 0
    for extra_info in (None, {}, 3):
        assert math(r"\boxed{5}", "5", extra_info, unknown=1)["score"] == 1


pieces = st.sampled_from(
    ["\\boxed{", "}", "{", "\\frac", "1", "2", ",", "(", ")", "^", "\\text{", "%", ".", " ", "$"]
)
texts = st.one_of(
    st.text(max_size=100), st.lists(st.one_of(pieces, st.text()), max_size=20).map("".join)
)


@settings(max_examples=60, deadline=None)
@given(texts, texts)
def test_any_text_scores_between_zero_and_one(solution, gold):
    math(solution, gold, lenient=True, format_bonus=0.5, timeout_s=0.5)
    math(f"\\boxed{{{solution}}}", gold, timeout_s=0.5)


@settings(max_examples=60, deadline=None)
@given(st.fractions(max_denominator=10**6), st.integers(min_value=6, max_value=12))
def test_a_decimal_of_six_places_matches_its_fraction_and_a_wrong_last_place_does_not(
    value, places
):
    units = round(value * 10**places)  # in units of the last place, half to even
    gold = f"\\frac{{{value.numerator}}}{{{value.denominator}}}"

    def written(number):
        digits = str(abs(number)).rjust(places + 1, "0")
        return f"\\boxed{{{'-' * (number < 0)}{digits[:-places]}.{digits[-places:]}}}"

    # A decimal zero is no approximation of anything else.
    assert math(written(units), gold)["acc"] == (units != 0 or value == 0)
    assert math(written(units + 2), gold)["acc"] == 0


@pytest.mark.parametrize(
    "unit", ["\\boxed{", "\\", "{", "}", "\\boxed ", "answer ", "answer:\n", "\\{"]
)
def test_long_hostile_texts_end_quickly(unit):
    text = unit * (1_000_000 // len(unit))
    check_shape(compute_score("x", text, "5/7", lenient=True), KEYS)
    check_shape(compute_score("x", f"\\boxed{{{text}}}", "5/7"), KEYS)
