r"""Values and units, and how answers look: pairs of a right answer and what a response says."""

import pytest

pytest.importorskip("math_verify")
from verl_msgrpo.rewards.math.appearance import plain, without_thousands
from verl_msgrpo.rewards.math.equal import UnreadableError, equal_answers
from verl_msgrpo.rewards.math.text import both_signs, elements, tidy


def cases(text):
    """One case a line: the right answer, ` ; `, what is said."""
    return [pytest.param(*line.strip().split(" ; ")) for line in text.strip().splitlines()]


READ_AS_A_WHOLE = r"""
    \frac{1}{2} ; 2\frac{1}{2}.
    \frac{1}{2} ; 5+\frac{1}{2}.
    \frac{1}{2} ; \langle \frac12, 3\rangle
    \frac{1}{2} ; \langle 3, \frac{1}{2}\rangle
    \frac{1}{2} ; (\frac12
    \frac{1}{2} ; (\frac{1}{2}
    \frac{3}{4} ; [\frac{3}{4}
    \frac{1}{2} ; 3, (\frac{1}{2}
    \frac{1}{2} ; 7+\langle\frac{1}{2}
    \frac{1}{2} ; \frac{1}{2} \text{ or } \langle 3
    0.5 ; \{\frac{1}{2}
    7 ; 7)
"""


@pytest.mark.parametrize(("right", "said"), cases(READ_AS_A_WHOLE))
def test_an_answer_that_does_not_parse_as_a_whole_is_wrong(right, said):
    assert not equal_answers(right, said)


@pytest.mark.parametrize(
    "right", [r"\langle 7,\frac12\rangle", r"(\frac{1}{2}", "E_{1},E_{2}", "$t(0,4]$"]
)
def test_a_right_answer_that_does_not_parse_as_a_whole_is_an_error(right):
    with pytest.raises(UnreadableError):
        equal_answers(right, r"\frac12")
    assert equal_answers(right, f" {right}.")  # the same text


NOT_A_UNIT = r"""
    12 ; 12\text{ cm or }13\text{ cm}
    12 ; 12\text{ km}, 5\text{ km}
    12 ; 12\text{ is wrong}
    12 ; 12\text{ or more}
    12 ; 12\text{ and a half}
    12 ; 12\text{ if }x>0
    12 ; 12\text{ squared}
    12 ; 12\text{ cm}, 13\text{ cm}
    12 ; 12\text{ and }13
    12 ; 12 or 13
    12 ; 12 but not 13
    12 ; \text{12 or 13}
    17 ; \text{The answer is 17}
    5 ; 5\text{ million}
    5 ; 5 thousand
    5 ; 5\text{ dozen}
    5 ; 5\text{ hundred}
    9\text{ chickens and }10\text{ rabbits} ; 9\text{ chickens and }11\text{ rabbits}
    9\text{ chickens and }10\text{ rabbits} ; 10\text{ chickens and }9\text{ rabbits}
    100\% ; 100\text{ square units}
    20\% ; 20\text{ degrees}
    65\text{ children tickets} ; 65\%
    40^\circ ; 40_9
    25^\circ ; 25_{6}
    40 ; 40_9
    12_5 ; 12_7
    9\text{ a.m.} ; 9^\circ
    15\mbox{ cm}^2 ; 15^\circ
    118\text{ dollars} ; 118^\circ
    \$5 ; 5\text{ km}
    5\text{ cm}^2 ; 5\text{ cm}^3
    5\text{ cm} ; 5 square cm
    3t ; 3
    2ab ; 2
    5 ; 5xyz
"""


@pytest.mark.parametrize(("right", "said"), cases(NOT_A_UNIT))
def test_words_that_are_no_unit_and_units_of_another_kind(right, said):
    assert not equal_answers(right, said)


UNITS = r"""
    12 ; 12\text{ cm}
    12 ; 12\,\mathrm{cm}
    12 ; 12\ \text{cm}^2
    12 ; 12\;\mathrm{cm}
    12 ; 12\mbox{ cm}^2
    12\text{ square cm} ; 12\text{ cm}^2
    12\text{ cm squared} ; 12 cm^2
    12\text{ cm} ; 12
    12\text{ cm} ; 12 centimeters
    5 ; 5 people
    5 ; 5 apples
    5 ; 5 red balls
    5 ; 5 miles per hour
    5 ; 5 km/h
    5 ; 5km
    5 ; 5 m
    5 ; \text{5 ways}
    5 ; 5\text{ pairs}
    2/5 ; (\frac{2}{5}) 吨
    37 ; 37°C
    40^\circ ; 40\text{ degrees}
    40^\circ ; 40
    60 ; 60^{\circ}
    \$5 ; 5 dollars
    5 ; \$5
    5 ; \$5.00
    10\text{ m/s} ; 10\,\mathrm{m}/\mathrm{s}
    10 ; 10 \mathrm{~m} \mathrm{~s}^{-1}
    8\sqrt{3} ; 8\sqrt{3} \text { square inches}
    12,13 ; 12\text{ cm and }13\text{ cm}
    12\text{ and }13 ; 12,13
    9\text{ chickens and }10\text{ rabbits} ; 9\text{ chickens and }10\text{ rabbits}
    9\text{ chickens and }10\text{ rabbits} ; 9 chickens and 10 rabbits
    5000000 ; 5\text{ million}
    5\text{ million} ; 5,000,000
    60 ; 5 dozen eggs
    2300000 ; 2.3\text{ million dollars}
    101_2 ; 101
    100\% ; 1
    3t ; 3t
"""


@pytest.mark.parametrize(("right", "said"), cases(UNITS))
def test_units_may_be_missing_or_spelled_otherwise(right, said):
    assert equal_answers(right, said)


LOOKS = r"""
    72 ; 72.
    72 ; 72,
    72 ; 72 .
    72 ; 72;
    72 ; 72\ .
    72 ; 72\,
    72 ; 72\
    72 ; 72\\
    72 ; 72~
    \text{Yes} ; \text{Yes.}
    \text{4:30 p.m.} ; \text{4:30 p.m.}
    (1,2) ; (1,2).
    x=5 ; x=5.
    80000 ; 80,000 dollars
    1200 ; x=1,200
    1200 ; 1,200\,\text{cm}
    1200 ; 1{,}200
    1200 ; 1,\!200
    1200 ; 1\,200
    1200.5 ; 1,200.50
    -1200 ; -1,200 meters
    \frac{1200}{7} ; \frac{1,200}{7}
    \frac{1200}{7} ; 1,200/7
    2500\pi ; 2,500\pi
    \sqrt{1234} ; \sqrt{1,234}
    1, 200 ; 1,200
    (1,200) ; (1, 200)
    60 ; 60°
    60^\circ ; 60°
    6\sqrt{3} ; 6√3
    2\sqrt{x+1} ; 2√(x+1)
    \sqrt[3]{2} ; ∛2
    x^2 ; x²
    x^{10} ; x¹⁰
    x^{-1} ; x⁻¹
    a_1 ; a₁
    (0,\infty) ; (0,∞)
    (-\infty,1)\cup(2,\infty) ; (−∞,1)∪(2,∞)
    \theta ; θ
    \pi ; π
    \frac12 ; ½
    2\frac34 ; 2¾
    x\le 3 ; x≤3
    x\ne 2 ; x≠2
    \pm 2 ; ±2
    \mathbb{R} ; ℝ
    \emptyset ; ∅
    (1,2) ; （1，2）
    5 ; ５
    5 ; 5​
    17 ; \boldsymbol{17}
    17 ; \mathbf{17}
    17 ; \textbf{17}
    17 ; \text{17}
    17 ; \color{red}17
    17 ; \color{red}{17}
    17 ; {\color{red} 17}
    17 ; \textcolor{red}{17}
    17 ; \colorbox{yellow}{17}
    17 ; \bf 17
    17 ; {\bf 17}
    17 ; \large 17
    17 ; \displaystyle 17
    17 ; \underline{17}
    17 ; **17**
    17 ; *17*
    17 ; __17__
    17 ; `17`
    17 ; \(17\)
    17 ; \boxed{17}
    17 ; \text{17 ways}
    \frac{1}{2} ; \boldsymbol{\frac{1}{2}}
    x+1 ; \boldsymbol{x+1}
    \text{Monday} ; \textbf{Monday}
    \text{Monday} ; Monday.
    December ; december
    No solution ; \text{no solution}
    north ; **North**
    abxy ; bayx
    \ln 4 ; 2\ln 2
    (0,1) ; \{x \mid 0<x<1\}
    (0,1) ; \{x\in\mathbb{R} : 0<x<1\}
    (-\infty,0)\cup(1,\infty) ; x<0 \text{ or } x>1
    x<0 \text{ or } x>1 ; (-\infty,0)\cup(1,\infty)
    (-\infty,0]\cup[1,\infty) ; x\le 0\lor x\ge 1
    \sqrt3 ; sqrt(3)
    \sqrt{1+\sqrt2} ; sqrt(1+sqrt(2))
    \sqrt3-1 ; -1 + sqrt(3)
    2^{1/4} ; 2**(1/4)
    \frac{\pi}{2} ; pi/2
    3x^2 ; 3*x**2
    \frac\pi4 ; \frac{\pi}{4}
    \sqrt2 ; 1.4142135623730951
    \frac{-1\pm\sqrt5}{2} ; \frac{-1+\sqrt5}{2},\frac{-1-\sqrt5}{2}
    x=\frac12, x=\frac{-1\pm\sqrt5}{2} ; x=\frac{-1\pm\sqrt5}{2}, x=\frac12
"""


@pytest.mark.parametrize(("right", "said"), cases(LOOKS))
def test_how_an_answer_looks_does_not_count(right, said):
    assert equal_answers(right, said)


LOOKS_ALIKE = r"""
    1200 ; 1, 200
    (1,200) ; 1200
    1200 ; 1,20,0
    x^2 ; x2
    6\sqrt3 ; \sqrt{63}
    \sqrt2 ; 1.414213562373052
    \frac23 ; 0.66666666666666665
    \frac{-1\pm\sqrt5}{2} ; \frac{-1+\sqrt5}{2}
    17 ; 1\color{red}6
    17 ; *1*7*
    1,2,3 ; 1,2,3,\ldots
    3! ; 3
    \ln 5 ; 2\ln 2
    east ; seat
    \text{east} ; seat
    No solution ; no solutions at all
    (-\infty,0)\cup(1,\infty) ; x<0 \text{ or } x>2
    (-\infty,0)\cup(1,\infty) ; x<0, x>1
    (0,1) ; \{x \mid x^2<x\}
    \{1,2\} ; \{x \mid x^2-3x+2=0\}
"""


@pytest.mark.parametrize(("right", "said"), cases(LOOKS_ALIKE))
def test_what_only_looks_alike_is_wrong(right, said):
    assert not equal_answers(right, said)


EQUATIONS = r"""
    x^2=-1 ; x=x+1
    x^2+1=0 ; 0=1
    x^2=-4 ; y=y+2
    x^2+x+1=0 ; x=x-1
"""


@pytest.mark.parametrize(("right", "said"), cases(EQUATIONS))
def test_equations_without_solutions_are_not_all_one(right, said):
    assert not equal_answers(right, said)
    assert equal_answers(right, right)


def test_pieces():
    assert plain(r"{\bf \frac12}") == r"{\frac{1}{2}}"
    assert without_thousands("1,200+(1,200)") == "1200+(1,200)"
    assert elements("(1,2), 3 and 4") == ["(1,2)", "3", "4"]
    assert both_signs(r"1\pm 2") == "1+ 2, 1- 2"
    assert tidy(r"12\text{ square cm}").unit == "cm^2"
    assert tidy("3t").variable
    assert not tidy("3 kg").variable
