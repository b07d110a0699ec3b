import pytest

pytest.importorskip("math_verify")
import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2

from verl_msgrpo.rewards.math import equal

LATEX = [
    *("12", "0.25", "1/2", "-3", "(1,2)", "[1,2)", "1,2,3", "x=5", "x=1,y=2", "1<x<2", "a_1+a_2"),
    *(r"\frac{1}{2^{99}}", r"2\frac{2}{3}", r"3\pm\sqrt{2}", r"\{1,2\}", r"x(3x+1)", r"\log_{2}8"),
    *(r"\int_{0}^{1} x^{2} dx", r"\sum_{k=1}^{n} k", r"|x-3|\le 5", r"f(x)=3x", r"\sin^{2} x"),
    *(r"x\in(-\infty,2)\cup[3,\infty)", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\text{B}"),
    *("1+", "((", r"\frac{1}"),  # syntax errors
]


def parsed(parse, latex):
    try:
        return sympy.srepr(parse(latex, is_real=True, normalization_config=None))
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("latex", LATEX)
def test_same_results_as_full_prediction(latex, monkeypatch):
    fast = parsed(equal.parse_in_two_stages, latex)
    monkeypatch.setattr(equal, "_mode", PredictionMode.LL)
    assert parsed(latex2sympy2.latex2sympy, latex) == fast
