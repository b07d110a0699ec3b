r"""Mathematical answers as text: what to repair before math-verify's parser reads them.

It reads "2 2/3" as 4/3, 1.5e3 as 4.5 e and "\boxed{28\%}" not at all, and it drops the base of
12_5 and a trailing "t" or "ab" as a unit even where it is the variable of the right answer.
"""

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

_MIXED = re.compile(
    r"(?<![\w.,/^_)}\\])(\d+)(?:\s|\\[ ,;]|~)+([1-9]\d*)\s*/\s*([1-9]\d*)(?![\w.^])"
)
_THOUSANDS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:(?:\\[ ,;!]|~| )\d{3})+(?![\w/]|\s*/)")
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d{1,4})(?![\w.])")
_PERCENT = re.compile(
    r"\s*(?:\\?%|\\text\s*\{\s*(?:%|percent(?:age)?|pct)\s*\}|\b(?:percent(?:age)?|pct)\b)"
)
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_SIGNS = str.maketrans({"−": "-", "–": "-", "×": r"\times ", "÷": "/", "⁄": "/", "·": r"\cdot "})
_DECIMAL = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.])")
# A unit, or a variable, at the end of an answer that begins with a number.
_SUFFIX = re.compile(
    r"(?<=[\d}\s])(?:\\(?:text|mbox|mathrm)\s*\{\s*(?P<unit>[^{}]*?)\s*\}|(?P<bare>[A-Za-z]+))"
    r"(?P<power>\s*\^\s*\{?\d\}?)?\s*$"
)
_BASE = re.compile(r"(?<=\d)_\s*(?:\{\s*(\d+)\s*\}|(\d+))$")
# Written right behind a number these are units; any other letters there are variables.
_ATTACHED_UNITS = frozenset(("mm", "cm", "km", "kg", "mg", "ml", "ft", "lb", "hr", "min", "mph"))


class Answer(NamedTuple):
    """An answer for the parser: its text, whether it was a percentage, what stands at its end."""

    latex: str
    percent: bool
    unit: str  # "cm", "cm^2", "_5" for a base; "" without one
    variable: bool  # the end is made of letters that may be variables


def tidy(text: str) -> Answer:
    """Writes an answer the way that the parser reads right."""
    text = text.strip().strip("$").strip().translate(_SIGNS)
    text = _VULGAR.sub(lambda found: " " + _fraction(found[0]), text).strip().translate(_SIGNS)
    without_percent = _PERCENT.sub("", text)
    percent = without_percent != text
    text = _MIXED.sub(_mixed, without_percent)
    text = _THOUSANDS.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    text = _SCIENTIFIC.sub(r"\1\\times 10^{\2}", text)
    if base := _BASE.search(text):
        return Answer(text, percent, "_" + (base[1] or base[2]), False)
    suffix = _SUFFIX.search(text)
    if not suffix:
        return Answer(text, percent, "", False)
    bare = suffix["bare"] or ""
    attached = suffix.start() > 0 and not text[suffix.start() - 1].isspace()
    variable = len(bare) == 1 or (bool(bare) and attached and bare not in _ATTACHED_UNITS)
    unit = (suffix["unit"] or bare) + (suffix["power"] or "")
    return Answer(text, percent, re.sub(r"[\s{}]", "", unit).lower(), variable)


def same_unit(first: str, second: str) -> bool:
    """Whether two units are spellings of one: equal, or one abbreviates the word of the other."""
    (first, _, power), (second, _, other_power) = first.partition("^"), second.partition("^")
    short, long = sorted((first.rstrip("s."), second.rstrip("s.")), key=len)
    if power != other_power or short == long:
        return power == other_power
    letters = iter(long)
    return len(long) >= 4 and long[0] == short[:1] and all(one in letters for one in short)


def decimals(text: str) -> dict[Fraction, int]:
    """The decimal fractions written in a text, without sign, and their number of places."""
    found: dict[Fraction, int] = {}
    for match in _DECIMAL.finditer(text):
        places = len(match[0].partition(".")[2])
        value = Fraction(match[0])
        found[value] = max(places, found.get(value, 0))
    return found


def _fraction(character: str) -> str:
    return unicodedata.normalize("NFKC", character)


def _mixed(found: re.Match[str]) -> str:
    whole, numerator, denominator = found.groups()
    if int(numerator) >= int(denominator):
        return found[0]
    return rf"{whole}\frac{{{numerator}}}{{{denominator}}}"
