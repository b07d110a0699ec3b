r"""Whether an answer is evaluated already, or is the problem written down again.

The checker can add up sums, integrate and solve. So an answer may ask for an operation only where
the right answer asks for one of that kind too:

- sums, products, integrals, limits, derivatives, remainders, floors, determinants, products and
  powers of matrices, greatest and least elements, divisors, real parts, intersections, ellipses:
  always;
- logarithms, trigonometric and exponential functions, absolute values: where the right answer is
  made of numbers alone;
- where the right answer is a set, or a relation that is solved (x = 3, x < 3), a relation has to be
  solved: a bare variable on one side, and none of it on the other.

Arithmetic that people leave standing is right: `\sqrt{12}`, `2/6`, `2^{10}`, `3!`, 9+1. But where
the right answer is a plain integer, an answer of two or more operations must not be longer than
the integer: `\frac{100\cdot101}{2}` does not state 5050, `10^6+1` states 1000001.
"""

import re

import sympy
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from verl_msgrpo.rewards.math.appearance import closing

# By kind; names also in \operatorname{}, \text{} and \mathrm{}, or as a function's name.
_NAMED = {
    "sum": "sum",
    "product": "prod|coprod",
    "limit": "lim|limsup|liminf|varlimsup|varliminf",
    "integral": "int|iint|iiint|oint|smallint",
    "remainder": "mod|bmod|pmod|pod|rem",
    "rounding": "floor|ceil|ceiling|lfloor|lceil|round|trunc|sgn|sign",
    "determinant": "det|tr|trace|rank|perm|adj|dim|ker",
    "divisor": "gcd|lcm|hcf|gcf|LCM|GCD",
    "extreme": "max|min|sup|inf|argmax|argmin",
    "derivative": "nabla|partial",
    "part": "Re|Im|re|im|arg|conj|conjugate",
    "intersection": "cap|bigcap|bigcup|cupdot|triangle(?=\\s*[A-Z(\\\\])|complement",
}
_OPERATIONS = {
    kind: re.compile(
        rf"\\(?:{names})(?![A-Za-z])"
        rf"|\\(?:operatorname\*?|text|mathrm|mathop)\s*\{{\s*(?:\\?(?:{names}))\s*\}}"
        rf"|(?<![A-Za-z\\])(?:{names})\s*[(_]"
    )
    for kind, names in _NAMED.items()
}
_OPERATIONS["determinant"] = re.compile(
    _OPERATIONS["determinant"].pattern + r"|\\begin\s*\{[vV]matrix\*?\}"
)
_OPERATIONS["derivative"] = re.compile(
    _OPERATIONS["derivative"].pattern
    + r"|\\frac\s*\{\s*(?:\\(?:text|mathrm)\s*\{)?d\b|\\frac\s*\{\s*d[a-z]?\s*\}"
)
_OPERATIONS["matrix"] = re.compile(
    r"matrix\*?\}\s*(?:\\right\s*)?[\])]?\s*(?:\^|(?:\\cdot|\\times|\*)?\s*(?:\\left)?\s*[\[(]?\s*\\begin)"
)
_OPERATIONS["ellipsis"] = re.compile(r"\\(?:[lc]|v|d)?dots[a-z]?(?![A-Za-z])|\.\.")
_FUNCTIONS = re.compile(
    r"(?:\\(?:operatorname\s*\{\s*)?|\\(?:text|mathrm)\s*\{\s*|(?<![A-Za-z\\]))"
    r"(?:(?:arc|ar|a)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|lg|exp|cis|Gamma|zeta)(?![a-z])"
    r"|\be\s*\^|(?<=\d)e\s*\^"
)
_MAY_BE_A_FUNCTION = re.compile(
    rf"{_FUNCTIONS.pattern}|(?<![A-Za-z\\])e(?![A-Za-z])|\\mathrm\{{e\}}"
)
_BARS = re.compile(r"\||\\[lr]?vert(?![A-Za-z])|\\mid(?![A-Za-z])|\\[lr]?Vert|\\abs(?![A-Za-z])")
_DECIMAL_ELLIPSIS = re.compile(r"(\d\.\d+)\s*(?:\\[lcd]?dots|\.{2,3})$")
_REDUCED = re.compile(r"(-?\d+)\s*(?:\(\s*)?(?:\\[bp]?mod|\\pmod)\s*\{?\s*(\d+)\s*\}?\)?")
_INTEGER = re.compile(r"[-+]?\d+")
_POWER_OF_TEN = re.compile(
    r"[-+]?\d*\.?\d*\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{\s*\d+\s*\}|\d)"
)
_GLYPH = re.compile(r"\\[A-Za-z]+|[^\s{}\\]")
_OPERATOR = re.compile(
    r"\\(?:cdot|times|div|[dtc]?frac|[dt]?binom|sqrt)(?![A-Za-z])|[+\-*/^!]|(?<=[\d)}])\s*\("
)


def is_evaluated(
    answer: str,
    said: sympy.Basic | sympy.MatrixBase,
    gold: str,
    right: sympy.Basic | sympy.MatrixBase,
) -> bool:
    """Whether an answer leaves no more to be done than the right one does.

    answer, gold: their LaTeX; said, right: what it was parsed as.
    """
    value = _value(answer)
    asked = [found for found in _OPERATIONS.values() if found.search(value)]
    done = _DECIMAL_ELLIPSIS.fullmatch(value) or _is_reduced(value)
    if not done and any(not found.search(gold) for found in asked):
        return False
    if not getattr(right, "free_symbols", None):
        if _FUNCTIONS.search(value) and not _MAY_BE_A_FUNCTION.search(gold):
            return False
        if _BARS.search(value) and not _BARS.search(gold):
            return False
    return not _asks_for_solutions(right) or all(
        _is_solved(lhs, rhs) for lhs, rhs in _relations(said)
    )


def is_short_enough(answer: str, gold: str) -> bool:
    """Whether an answer with the value of a plain integer is no calculation that is longer."""
    if not _INTEGER.fullmatch(gold):
        return True
    value = _value(answer)
    operators = _OPERATOR.findall(re.sub(r"^\s*[-+]|(?<=[({])\s*[-+]", "", value))
    if len(operators) <= 1:
        return True
    return len(_GLYPH.findall(value)) <= len(gold) or bool(_POWER_OF_TEN.fullmatch(value))


def _value(answer: str) -> str:
    """What follows the last "=" that is in no bracket: "S = 5" states 5."""
    answer = answer.strip()
    if answer.startswith("(") and closing(answer, 0) == len(answer) - 1:
        answer = answer[1:-1]
    depth = 0
    for at in range(len(answer) - 1, -1, -1):
        depth += (answer[at] in ")]}") - (answer[at] in "([{")
        if depth == 0 and answer[at] == "=" and answer[at - 1 : at] not in ("<", ">", "!"):
            return answer[at + 1 :].strip()
    return answer


def _is_reduced(value: str) -> bool:
    r"""Whether it is 401 \pmod{1000}, a remainder already."""
    found = _REDUCED.fullmatch(value)
    return found is not None and 0 <= int(found[1]) < int(found[2])


def _asks_for_solutions(right: sympy.Basic | sympy.MatrixBase) -> bool:
    relations = _relations(right)
    if not relations:
        return isinstance(right, sympy.Set)
    return all(
        _is_solved(lhs, rhs) and (_is_number(lhs) or _is_number(rhs)) for lhs, rhs in relations
    )


def _relations(expression: sympy.Basic | sympy.MatrixBase) -> list[tuple[sympy.Basic, sympy.Basic]]:
    """Both sides of every relation; of a chain like x = 2 + 3 = 5 the first and the last."""
    if isinstance(expression, Relational):
        return [(expression.lhs, expression.rhs)]
    if isinstance(expression, sympy.And) and all(isinstance(x, sympy.Eq) for x in expression.args):
        chain = getattr(expression, "_unsorted_args", expression.args)
        return [(chain[0].lhs, chain[-1].rhs)]
    if not isinstance(expression, sympy.Basic):
        return []
    return [sides for part in expression.args for sides in _relations(part)]


def _is_solved(lhs: sympy.Basic, rhs: sympy.Basic) -> bool:
    return any(
        _is_bare(one)
        and (isinstance(one, AppliedUndef) or not one.free_symbols & other.free_symbols)
        for one, other in ((lhs, rhs), (rhs, lhs))
    )


def _is_bare(side: sympy.Basic) -> bool:
    """Whether a side is a name: x, -x, f(x), (x, y)."""
    if isinstance(side, sympy.Tuple | sympy.Interval | sympy.FiniteSet):
        names = side.args[:2] if isinstance(side, sympy.Interval) else side.args
        return all(map(_is_bare, names))
    if isinstance(side, sympy.Mul) and side.args[0] == -1 and len(side.args) == 2:
        side = side.args[1]
    return isinstance(side, sympy.Symbol | AppliedUndef)


def _is_number(side: sympy.Basic) -> bool:
    return not side.free_symbols
