"""No fixed answer and no rewriting of a problem scores on more than its own right answer."""

import random

import pytest

pytest.importorskip("math_verify")
from verl_msgrpo.rewards.math.equal import equal_answers

GOLDS = 200
# What a policy might say whatever the question is; none is one of the right answers below.
FIXED = [
    *("0", "1", r"\frac{1}{2}", r"\pi", "e", r"\infty", r"-\infty", "x", "x=x", "x=x+1", "0=0"),
    *(r"\emptyset", r"\mathbb{R}", r"(-\infty,\infty)", "()", r"\{\}", "1,2,3", "(0,0)", "?", "."),
    *(r"\text{yes}", r"\text{No solution}", r"\text{any number}", r"\text{all of the above}"),
    *(
        r"\frac{0}{0}",
        r"\sqrt{x^2}",
        r"\pm\infty",
        r"0 \text{ or } 1",
        "1<2",
        "x>x",
        r"n\in\mathbb{Z}",
    ),
    *(r"\langle \frac{1}{2}, 3\rangle", r"(\frac{1}{2}", "=", r"\ldots", r"\text{ cm}", r"\%", "_"),
]


def draw(kind: str, rng: random.Random) -> tuple[str, str, list[str]]:
    """A right answer, another writing of it, and ways to put its problem or a guess at it."""
    a, b, c = rng.randint(101, 400), rng.randint(401, 700), rng.randint(701, 999)
    if kind == "integers":
        again = [rf"\sum_{{k=1}}^{{{a}}} 1", rf"{a + 7} - 3 - 4", rf"\gcd({a},{a * b})", rf"|-{a}|"]
        return str(a), f"{a}.", [*again, rf"{a}\text{{ or }}{b}", rf"{a}\text{{ thousand}}"]
    if kind == "fractions":
        top = b - 1 if b % 2 else b  # not equal to one of FIXED
        again = [rf"\int_0^1 \frac{{{top}}}{{{c}}} dx", rf"\langle \frac{{{top}}}{{{c}}}, 3\rangle"]
        return rf"\frac{{{top}}}{{{c}}}", f"{top}/{c}", [*again, rf"(\frac{{{top}}}{{{c}}}"]
    if kind == "decimals":
        return f"{a}.{b}", f"{a}.{b}0", [f"{a}", f"{a}.{b + 1}", rf"\lim_{{x\to 0}} x+{a}.{b}"]
    if kind == "roots":
        again = [rf"\int_0^{{{a}}} \sqrt{{{b}}} dx", rf"\sqrt{{{b}}}", rf"|-{a}\sqrt{{{b}}}|"]
        return rf"{a}\sqrt{{{b}}}", rf"{a}√{b}", again
    if kind == "intervals":
        again = [f"x^2-{a + b}x+{a * b}<0", f"2x>{2 * a}", rf"(0,{b})\cap({a},{c})", f"[{a},{b}]"]
        return f"({a},{b})", f"{a}<x<{b}", again
    if kind == "sets":
        again = [f"x^2-{a + b}x+{a * b}=0", rf"\{{{a}\}}", rf"\{{{a},{b},{c}\}}", f"{a}"]
        return rf"\{{{a},{b}\}}", f"{b}, {a}", again
    if kind == "tuples":
        again = [f"({b},{a},{c})", f"({a},{b})", f"({a},{b},{c}", f"{a},{b},{c},{c}"]
        return f"({a},{b},{c})", rf"\left({a}, {b}, {c}\right)", again
    if kind == "equations":
        again = [f"2x={2 * a}", f"x^3={a**3}", f"x+{b}={a + b}", rf"x=\sum_{{k=1}}^{{{a}}} 1"]
        return f"x={a}", f"x = {a}", again
    again = [rf"\frac{{d}}{{dx}}({a}\frac{{x^3}}{{3}}+{b}x)", rf"{a}x^2", f"{a}t^2+{b}"]
    return f"{a}x^2+{b}", f"{b}+{a}x^{{2}}", again


KINDS = [
    *("integers", "fractions", "decimals", "roots", "intervals", "sets", "tuples", "equations"),
    "expressions",
]


def pays(right: str, said: str) -> bool:
    return said == right or equal_answers(right, said)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_answer_is_paid(kind: str) -> None:
    rng = random.Random(f"not fooled {kind}")
    drawn = [draw(kind, rng) for _ in range(GOLDS)]
    for number, (right, written, attempts) in enumerate(drawn):
        if number % 5 == 0:
            assert pays(right, written), (right, written)
        said = attempts[number % len(attempts)]
        assert not pays(right, said), (right, said)
        said = FIXED[number % len(FIXED)]
        assert not pays(right, said), (right, said)
        # Another row's right answer, unless it is the same by chance.
        other = drawn[(number + 1) % GOLDS][0]
        assert other == right or not pays(right, other), (right, other)


@pytest.mark.parametrize("said", FIXED)
def test_a_fixed_answer_is_paid_for_no_kind(said: str) -> None:
    rng = random.Random(f"fixed {said}")
    for kind in KINDS:
        right, _, _ = draw(kind, rng)
        assert not pays(right, said), (right, said)
