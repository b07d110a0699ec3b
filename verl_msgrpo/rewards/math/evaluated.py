r"""Whether an answer is evaluated already: else a policy is paid for writing the problem down again.

The checker can add up sums, integrate and solve. So an answer may ask for an operation only where
the right answer asks for one of that kind too:

- sums, products, integrals, limits, derivatives, remainders, floors, determinants, products and
  powers of matrices, greatest and least elements, divisors, real parts, intersections, ellipses:
  always;
- logarithms, trigonometric and exponential functions, absolute values: where the right answer is
  made of numbers alone;
- where the right answer is a set, or a relation that is solved (x = 3, x < 3), a relation has to be
  solved: a bare variable on one side, and none of it on the other.

Arithmetic that people leave standing is right: `\sqrt{12}`, 2/6. But where the right answer is a
plain integer, an answer that is longer than it has to be one power, root, factorial or binomial.
"""

import re

import sympy
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

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
    _OPERATIONS["derivative"].pattern + r"|\\frac\s*\{\s*(?:\\(?:text|mathrm)\s*\{)?d\b|\\frac\s*\{\s*d[a-z]?\s*\}"
)
_OPERATIONS["matrix"] = re.compile(
    r"matrix\*?\}\s*(?:\\right\s*)?[\])]?\s*(?:\^|(?:\\cdot|\\times|\*)?\s*(?:\\left)?\s*[\[(]?\s*\\begin)"
)
_OPERATIONS["ellipsis"] = re.compile(r"\\(?:[lc]|v|d)?dots[a-z]?(?![A-Za-z])|\.\.")
_FUNCTIONS = re.compile(
    r"(?:\\(?:operatorname\s*\{\s*)?|\\(?:text|mathrm)\s*\{\s*|(?<![A-Za-z\\]))"
    r"(?:(?:arc|ar|a)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|lg|exp|cis)(?![a-z])"
    r"|\be\s*\^|(?<=\d)e\s*\^"
)
_MAY_BE_A_FUNCTION = re.compile(rf"{_FUNCTIONS.pattern}|(?<![A-Za-z\\])e(?![A-Za-z])|\\mathrm\{{e\}}")
_BARS = re.compile(r"\||\\[lr]?vert(?![A-Za-z])|\\mid(?![A-Za-z])|\\[lr]?Vert|\\abs(?![A-Za-z])")
_DECIMAL_ELLIPSIS = re.compile(r"(\d\.\d+)\s*(?:\\[lcd]?dots|\.{2,3})$")
_REDUCED = re.compile(r"(-?\d+)\s*(?:\(\s*)?(?:\\[bp]?mod|\\pmod)\s*\{?\s*(\d+)\s*\}?\)?")
_INTEGER = re.compile(r"[-+]?\d+")
_POWER_OF_TEN = re.compile(r"[-+]?\d*\.?\d*\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{\s*\d+\s*\}|\d)")
_GLYPH = re.compile(r"\\[A-Za-z]+|[^\s{}\\]")
_OPERATOR = re.compile(
    r"\\(?:cdot|times|div|[dtc]?frac|[dt]?binom|sqrt)(?![A-Za-z])|[+\-*/^!]|(?<=[\d)}])\s*\("
)
_SINGLE_OPERATION = re.compile(r"\^|!|\\[dt]?binom|\\sqrt")


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
    if any(found.search(value) and not found.search(gold) for found in _OPERATIONS.values()):
        if not (_is_decimal(value) or _is_reduced(value)):
            return False
    if not getattr(right, "free_symbols", None):
        if _FUNCTIONS.search(value) and not _MAY_BE_A_FUNCTION.search(gold):
            return False
        if _BARS.search(value) and not _BARS.search(gold):
            return False
    return not _asks_for_solutions(right) or all(map(_is_solved, _relations(said)))


def is_short_enough(answer: str, gold: str) -> bool:
    """Whether an answer with the value of a plain integer is no calculation that is longer."""
    if not _INTEGER.fullmatch(gold):
        return True
    value = _value(answer)
    operators = _OPERATOR.findall(re.sub(r"^\s*[-+]|(?<=[({])\s*[-+]", "", value))
    if not operators or (len(operators) == 1 and _SINGLE_OPERATION.fullmatch(operators[0])):
        return True
    return len(_GLYPH.findall(value)) <= len(gold) or bool(_POWER_OF_TEN.fullmatch(value))


def _value(answer: str) -> str:
    """What follows the last "=" that is in no bracket: "S = 5" states 5."""
    depth = 0
    for at in range(len(answer) - 1, -1, -1):
        depth += (answer[at] in ")]}") - (answer[at] in "([{")
        if depth == 0 and answer[at] == "=" and answer[at - 1 : at] not in ("<", ">", "!"):
            return answer[at + 1 :].strip()
    return answer


def _is_decimal(value: str) -> bool:
    return bool(_DECIMAL_ELLIPSIS.fullmatch(value))


def _is_reduced(value: str) -> bool:
    r"""Whether it is 401 \pmod{1000}, a remainder already."""
    found = _REDUCED.fullmatch(value)
    return bool(found) and 0 <= int(found[1]) < int(found[2])


def _asks_for_solutions(right: sympy.Basic | sympy.MatrixBase) -> bool:
    if isinstance(right, sympy.Set):
        return True
    relations = _relations(right)
    return bool(relations) and all(
        _is_solved(one) and (one.lhs.is_number or one.rhs.is_number) for one in relations
    )


def _relations(expression: sympy.Basic | sympy.MatrixBase) -> list[Relational]:
    if not isinstance(expression, sympy.Basic):
        return []
    return [one for one in sympy.preorder_traversal(expression) if isinstance(one, Relational)]


def _is_solved(relation: Relational) -> bool:
    for bare, other in ((relation.lhs, relation.rhs), (relation.rhs, relation.lhs)):
        if isinstance(bare, sympy.Symbol | AppliedUndef) and not (
            bare.free_symbols & getattr(other, "free_symbols", set())
        ):
            return True
    return False
