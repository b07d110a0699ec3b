r"""Whether two mathematical answers are equal: math-verify, with a numeric rule of our own.

math-verify 0.9.0 calls numbers equal that agree to six places once one of them is a decimal, and
to 15 places where both are not: 1/2^{98} and 1/2^{99} are "equal". Its comparison of sets, tuples,
intervals and matrices goes through the same functions for their elements, so those are replaced.
Its parser is made several times faster, with the same results. No time limit here: run it in a
process that can be killed (`pool`).
"""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache

import math_verify.grader
import math_verify.parser
import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from math_verify import verify
from sympy.core.relational import Relational

from verl_msgrpo.rewards.math.appearance import without_thousands
from verl_msgrpo.rewards.math.evaluated import is_evaluated, is_short_enough
from verl_msgrpo.rewards.math.text import (
    Answer,
    both_signs,
    decimals,
    same_unit,
    stated_words,
    tidy,
)

# Fewer places than this are an approximation that only matches where it is exact.
MIN_PLACES = 6
_DIGITS = 100
_DOUBLE_DIGITS = 15

# The limit is the caller's: silences a warning about the limits that are off below.
math_verify.parser.TIMEOUT_WARNING_SHOWN = True
math_verify.grader.TIMEOUT_WARNING_SHOWN = True
_simplified_eq = math_verify.grader.sympy_symbolic_eq
_solve_and_compare = math_verify.grader.sympy_solve_and_compare
# Units are taken off by `text`, which knows what a unit is.
_AS_A_WHOLE = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
)

_converter = latex2sympy2._Latex2Sympy
_create_parser = _converter.create_parser
_parse_number = _converter.parse_number
_mode = PredictionMode.SLL

_INEQUALITIES = (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)


class UnreadableError(ValueError):
    """The right answer is no mathematics that can be read as a whole."""


def equal_answers(gold: str, answer: str) -> bool:
    r"""Whether `answer` states the value of `gold`. Both are LaTeX without `$` or `\boxed`.

    A decimal matches another number if that number, rounded to the decimal's own places, equals it;
    with fewer than six places it must be exact. "28\%" equals 28 and 0.28. Units may be missing on
    one side, but not differ. Order counts in tuples, not in lists like "0,1". An answer has to be
    evaluated already (`evaluated`). Words without formulas are compared as words, without regard to
    case. May take for ever.

    Raises:
        UnreadableError: `gold` does not parse as a whole.
    """
    if words := stated_words(gold):
        return words == stated_words(answer, as_right=False)
    if _reads_equal(gold, answer, thousands=True):
        return True
    # "1,200" is one number, or a list that is written without blanks.
    ambiguous = any(without_thousands(side) != side for side in (gold, answer))
    return ambiguous and _reads_equal(gold, answer, thousands=False)


def _reads_equal(gold: str, answer: str, *, thousands: bool) -> bool:
    right = tidy(gold, thousands=thousands)
    said = tidy(answer, right, thousands=thousands)
    if right.percent and said.percent:
        units = "", ""
    else:
        units = "%" if right.percent else right.unit, "%" if said.percent else said.unit
    if units[0] and units[1] and not same_unit(*units):
        return False
    if said.unit.startswith("_") and said.unit != "_10" and not right.unit:
        return False  # a base is a part of the value
    if _equal(right.latex, said.latex):
        return True
    return right.percent != said.percent and _equal(_hundredth(right), _hundredth(said))


def numbers_equal(
    first: sympy.Expr, second: sympy.Expr, places: Mapping[Fraction, int]
) -> bool | None:
    """Whether two expressions are the same number; None if either one is no finite number.

    places: the decimals that the answers are written with, and their number of places.
    """
    first, first_places = _exact(first, places)
    second, second_places = _exact(second, places)
    if not (first.is_number and second.is_number):
        return None
    if first == second:
        return True
    if not (first.is_finite and second.is_finite):
        return None
    difference = abs(first - second)
    if not (first.is_zero or second.is_zero):  # 0.000000 approximates nothing
        for count in (first_places, second_places):
            half_unit = sympy.Rational(1, 2 * 10**count)
            if count >= MIN_PLACES and _at_most(difference, half_unit):
                return True
        if _is_double(first, first_places, second, difference) or _is_double(
            second, second_places, first, difference
        ):
            return True
    if first.is_Rational and second.is_Rational:
        return False
    # Equal in almost a hundred significant digits, relative to their size: equal.
    size = sympy.Max(abs(first).evalf(15), abs(second).evalf(15))
    return _at_most(difference, size * sympy.Rational(1, 10 ** (_DIGITS - 10)))


def differ_somewhere(first: sympy.Expr, second: sympy.Expr) -> bool:
    """Whether two expressions in variables have clearly different values at one arbitrary point."""
    variables = sorted(first.free_symbols | second.free_symbols, key=str)
    point = {x: sympy.Rational(41 + 14 * n, 29) for n, x in enumerate(variables)}
    one, other = first.xreplace(point).evalf(30), second.xreplace(point).evalf(30)
    if not (one.is_number and other.is_number and one.is_finite and other.is_finite):
        return False
    return bool(abs(one - other) > sympy.Float("1e-12") * (abs(one) + abs(other)))


def _equal(gold: str, answer: str) -> bool:
    right, said = _parse(gold), _parse(answer)
    if re.sub(r"\s", "", gold) == re.sub(r"\s", "", answer):
        return True
    if right is None:
        raise UnreadableError("it does not parse as a whole")
    if said is None or not is_evaluated(answer, said, gold, right):
        return False
    right, said = _as_set(right, gold, said), _as_set(said, answer, right)
    places = {**decimals(gold), **decimals(answer)}
    # By name, so that the comparisons of elements inside math-verify find them too.
    grader = math_verify.grader
    grader.sympy_numeric_eq = lambda first, second, *_: _numeric_eq(first, second, places)
    grader.sympy_symbolic_eq = lambda first, second: _symbolic_eq(first, second, places)
    equal = verify(right, said, allow_set_relation_comp=True, timeout_seconds=None)
    return equal and is_short_enough(answer, gold)


@lru_cache(maxsize=1024)  # a group's responses share the gold, and often the answer
def _parse(latex: str) -> sympy.Basic | sympy.MatrixBase | None:
    """What a text says as a whole; None where it does not parse.

    math-verify's own `parse` would go on to the last fraction in the text then.
    """
    for text in (latex, both_signs(latex)):
        try:
            return math_verify.parser.parse_latex_cached(normalize_latex(text, config=_AS_A_WHOLE))
        except Exception:
            if both_signs(latex) == latex:
                break
    return None


def _as_set(
    side: sympy.Basic | sympy.MatrixBase, latex: str, other: sympy.Basic | sympy.MatrixBase
) -> sympy.Basic | sympy.MatrixBase:
    """The union that "x < 0 or x > 1" states, where the other side is a set of numbers."""
    stated = isinstance(side, sympy.FiniteSet) and re.search(r"\bor\b", latex)
    if not stated or not isinstance(other, sympy.Set):
        return side
    inequalities = all(isinstance(part, _INEQUALITIES) for part in side.args)
    if not inequalities or len(side.free_symbols) != 1:
        return side
    return sympy.Union(*(part.as_set() for part in side.args))


def _solutions_equal(
    gold: Relational, pred: Relational, float_rounding: int, numeric_precision: int
) -> bool:
    """math-verify's comparison of solutions, which all equations without any would pass."""
    has_solutions = bool(sympy.solve(gold, gold.free_symbols))
    return has_solutions and _solve_and_compare(gold, pred, float_rounding, numeric_precision)


def _numeric_eq(
    first: sympy.Expr | sympy.MatrixBase,
    second: sympy.Expr | sympy.MatrixBase,
    places: Mapping[Fraction, int],
) -> bool:
    first, second = (math_verify.grader.safe_sympy_doit(side) for side in (first, second))
    matrices = isinstance(first, sympy.MatrixBase), isinstance(second, sympy.MatrixBase)
    if all(matrices):
        return first.shape == second.shape and all(
            math_verify.grader.sympy_expr_eq(a, b, MIN_PLACES, _DIGITS)
            for a, b in zip(first.flat(), second.flat(), strict=True)
        )
    return not any(matrices) and bool(numbers_equal(first, second, places))


def _symbolic_eq(
    first: sympy.Expr | sympy.MatrixBase,
    second: sympy.Expr | sympy.MatrixBase,
    places: Mapping[Fraction, int],
) -> bool:
    """math-verify's comparison by simplification, where nothing cheaper decides."""
    if isinstance(first, sympy.Expr) and isinstance(second, sympy.Expr):
        decided = numbers_equal(first, second, places)
        if decided is not None:
            return decided
        if differ_somewhere(first, second):
            return False
        if sympy.expand(first - second) == 0:
            return True
    return _simplified_eq(first, second)


def _exact(number: sympy.Expr, places: Mapping[Fraction, int]) -> tuple[sympy.Expr, int]:
    """The number with fractions for its floats, and its places if it is one written decimal."""
    if isinstance(number, sympy.Float):
        for written, count in places.items():
            fraction = sympy.Rational(written.numerator, written.denominator)
            if abs(number) == sympy.Float(fraction, precision=number._prec):
                return (fraction if number >= 0 else -fraction), count
    floats = {value: sympy.Rational(str(value)) for value in number.atoms(sympy.Float)}
    return number.xreplace(floats).doit(), 0


def _is_double(decimal: sympy.Expr, places: int, other: sympy.Expr, difference: sympy.Expr) -> bool:
    """Whether a decimal has the first 15 digits of an irrational number, as doubles have."""
    if not decimal.is_Rational or other.is_Rational or places < MIN_PLACES:
        return False
    digits = len(str(abs(int(decimal * 10**places))))
    half_unit = sympy.Rational(10) ** (digits - places - _DOUBLE_DIGITS) / 2
    return digits >= _DOUBLE_DIGITS and _at_most(difference, half_unit)


def _at_most(difference: sympy.Expr, bound: sympy.Expr) -> bool:
    if difference.is_Rational and bound.is_Rational:
        return bool(difference <= bound)
    value = difference.evalf(30, maxn=4 * _DIGITS)
    # What is left of log(4) - 2 log(2) is a Float without a digit, which sympy does not compare.
    return bool((value.is_comparable or value.is_Float) and value <= bound)


def _hundredth(answer: Answer) -> str:
    if not answer.percent:
        return answer.latex
    try:
        return format(Decimal(answer.latex).scaleb(-2), "f")  # keeps the number of places
    except InvalidOperation:
        return rf"\frac{{{answer.latex}}}{{100}}"


def _install_fast_parser() -> None:
    """Replaces math-verify's parser in this process, which has to be single-threaded.

    It also reads every integer through `sympy.Number`, which compiles it as an expression.
    """

    def create_parser(self: object, latex: str) -> object:
        parser = _create_parser(self, latex)
        parser._interp.predictionMode = _mode
        return parser

    def parse_number(self: object, text: str) -> sympy.Number:
        if text.isascii() and text.isdigit():
            return sympy.Integer(int(text))
        return _parse_number(self, text)

    _converter.create_parser = create_parser
    _converter.parse_number = parse_number
    math_verify.parser.latex2sympy = parse_in_two_stages
    math_verify.grader.sympy_solve_and_compare = _solutions_equal


def parse_in_two_stages(latex: str, **options: object) -> object:
    """`latex2sympy(latex, **options)`, several times faster; raises what it raises.

    ANTLR's two stages (documented at `PredictionMode.SLL`): the fast SLL prediction gives the tree
    that full LL prediction would give, or a syntax error; only then is the text parsed again with
    LL. latex2sympy 1.11 always takes LL, whose predictions are not cached.
    """
    global _mode
    try:
        _mode = PredictionMode.SLL
        return latex2sympy2.latex2sympy(latex, **options)
    except Exception:
        _mode = PredictionMode.LL
        return latex2sympy2.latex2sympy(latex, **options)


_install_fast_parser()
