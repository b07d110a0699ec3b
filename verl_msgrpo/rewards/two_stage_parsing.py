"""Makes latex2sympy 1.11 parse several times faster, with the same results.

ANTLR's two stages (documented at `PredictionMode.SLL`): the fast SLL prediction gives the tree that
full LL prediction would give, or a syntax error; only then is the text parsed again with LL.
latex2sympy always takes LL, whose predictions are not cached. It also reads every integer through
`sympy.Number`, which compiles it as an expression.
"""

import math_verify.parser
import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2

_converter = latex2sympy2._Latex2Sympy
_create_parser = _converter.create_parser
_parse_number = _converter.parse_number
_mode = PredictionMode.SLL


def install() -> None:
    """Replaces math-verify's parser in this process, which has to be single-threaded."""

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


def parse_in_two_stages(latex: str, **options: object) -> object:
    """`latex2sympy(latex, **options)`; raises what it raises."""
    global _mode
    try:
        _mode = PredictionMode.SLL
        return latex2sympy2.latex2sympy(latex, **options)
    except Exception:
        _mode = PredictionMode.LL
        return latex2sympy2.latex2sympy(latex, **options)
