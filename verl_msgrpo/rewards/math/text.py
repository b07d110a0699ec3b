r"""Mathematical answers as text: the value and the unit, as math-verify's parser reads them right.

It reads "2 2/3" as 4/3, 1.5e3 as 4.5 e and "\boxed{28\%}" not at all, and it cuts an answer at its
first `\text`. Here a unit is a noun phrase at the very end of a value: words that say something
else ("or", "is", "million") are never dropped. In a list every value may have the same unit.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from verl_msgrpo.rewards.math.appearance import (
    plain,
    without_thousands,
    without_trailing_marks,
)

_MIXED = re.compile(
    r"(?<![\w.,/^_)}\\])(\d+)(?:\s|\\[ ,;]|~)+([1-9]\d*)\s*/\s*([1-9]\d*)(?![\w.^])"
)
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d{1,4})(?![\w.])")
_PERCENT = re.compile(
    r"\s*(?:\\?%|\\text\s*\{\s*(?:%|percent(?:age)?|pct)\s*\}|\b(?:percent(?:age)?|pct)\b)"
)
_DECIMAL = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.])")
_BASE = re.compile(r"(?<=\d)_\s*(?:\{\s*(\d+)\s*\}|(\d+))$")
_CURRENCY = re.compile(
    r"(?P<sign>[-+]?)\s*(?:\\\$|\\(?:pounds|euro)(?![A-Za-z])|[$€£¥₹])\s*(?=[-\d.\\])"
)
_DEGREES = re.compile(r"\s*(?:\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree(?![A-Za-z]))\s*$")

# Number words are values: they multiply what stands before them.
_NUMBER_WORDS = {
    **{"dozen": "12", "hundred": "100", "thousand": "10^{3}", "million": "10^{6}"},
    **{"billion": "10^{9}", "trillion": "10^{12}"},
}
_NUMBER_WORD = re.compile(
    rf"(?<=[\d}}])(?:\s|~|\\ )*(?P<open>\\text\s*\{{\s*)?(?P<word>{'|'.join(_NUMBER_WORDS)})s?"
    r"(?![A-Za-z])\s*(?P<close>\})?"
)

# A noun phrase has none of these: it would say something about the value, or state another one.
_NOT_A_UNIT = re.compile(
    r"\b(?:and|or|nor|but|if|when|where|while|unless|because|since|so|that|which|than|as|with|not?"
    r"|none|never|without|except|is|are|was|were|be|am|isn't|aren't|has|have|had|do|does|did"
    r"|can(?:not)?|could|may|might|must|shall|should|will|would|i|you|we|he|she|it|they|this|these"
    r"|those|maybe|perhaps|probably|possibly|about|approximately|around|roughly|almost|nearly"
    r"|least|most|up|between|either|both|instead|rather|otherwise|else|versus|vs"
    r"|wrong|false|incorrect|right|correct|true|answer|guess|unknown|undefined|impossible|solutions?"
    r"|plus|minus|over|mod|modulo|choose|factorial|root|negative|positive|half|halves|thirds?"
    r"|hundred|thousand|million|billion|trillion|dozen|score|lakh|crore|zero|one|two|three|four"
    r"|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|seventy|eighty"
    r"|ninety|tens|double|triple|twice|thrice|squared|cubed)s?\b",
    re.I,
)
_ONLY_WORDS = re.compile(
    r"\\text\s*\{(?P<text>[\sA-Za-z'-]*[A-Za-z]{2}[\sA-Za-z'-]*)\}|(?P<bare>[A-Za-z][\sA-Za-z'-]*)"
)
# {x | 0 < x < 1}, of which the condition says all.
_BUILDER = re.compile(
    r"\\?\{\s*(?P<name>[A-Za-z])\s*(?:\\in\s*(?:\\mathbb\s*\{?\s*R\s*\}?|R)\s*)?(?:\||:|\\(?:mid|colon|vert)"
    r"(?![A-Za-z]))\s*(?P<condition>(?=.*(?P=name)).+?)\s*\\?\}"
)
_UNIT_END = r"(?P<power>\s*\^\s*(?:\{\s*-?\d\s*\}|\d))?\s*$"
_TEXT_UNIT = re.compile(
    r"(?:\s|~|\\[ ,;:!])*(?:/|\\cdot)?\s*\\(?P<font>text|mathrm)\s*\{(?P<unit>[^{}\d]*)\}"
    + _UNIT_END
)
# Words behind a value of digits alone, or letters right behind it.
_VALUE = re.compile(
    r"(?:\\?[A-Za-z]+(?:_\{?\w+\}?)?\s*=\s*)?"
    r"(?:\\(?:frac|sqrt|pi|times|cdot|circ|left|right)(?![A-Za-z])|\\[,; ]|~"
    r"|[\d\s{}()+\-*/^.,])*"
)
_WORD = r"[^\W\d_](?:[^\W\d_]|\.)*"
_WORDS = re.compile(rf"(?<![\\A-Za-z])(?P<unit>{_WORD}(?:[\s/]+{_WORD}){{0,4}})" + _UNIT_END)
# Right behind a number these are units; any other few letters there are variables.
_ATTACHED = frozenset(
    re.findall(
        r"\w+",
        "mm cm dm km kg mg ml cl ft in lb lbs oz hr hrs min mins sec secs mph kmph kph rpm ms Hz",
    )
)
_SINGLE = frozenset("mgshltdcLNJWVKACF")
_SEPARATOR = re.compile(r"[,;]?\s*\\text\s*\{\s*(?:and|or)\s*,?\s*\}|[,;]?\s*\b(?:and|or)\b|[,;]")
_JOINED = re.compile(r"\\text\s*\{(?P<unit>\s*[A-Za-z][^{}]*?),?\s+(?P<word>and|or)\s*\}")
_UNIT_NAMES = {
    **dict.fromkeys(("deg", "degs", "degrees", r"^\circ"), "degree"),
    **dict.fromkeys(("$", "usd", "dollars"), "dollar"),
}


class Answer(NamedTuple):
    """An answer for the parser: its text, whether it was a percentage, what stands at its end."""

    latex: str
    percent: bool
    unit: str  # "cm", "cm^2", "_5" for a base; "" without one
    variable: bool  # the end is made of letters that may be variables


def tidy(text: str, right: Answer | None = None, *, thousands: bool = True) -> Answer:
    """Writes an answer the way that the parser reads right.

    right: the right answer, if this is not the one: letters at its end are no units here either.
    thousands: whether 1,200 is one number.
    """
    text, unit = _without_currency(_from_builder(plain(text)))
    if thousands:
        text = without_thousands(text)
    text = _NUMBER_WORD.sub(_times, text)
    without_percent = _PERCENT.sub("", text)
    percent = without_percent != text
    text = _MIXED.sub(_mixed, without_percent)
    text = _SCIENTIFIC.sub(r"\1\\times 10^{\2}", text)
    if base := _BASE.search(text):
        return Answer(text, percent, "_" + (base[1] or base[2]), False)
    keeps_letters = right is not None and right.variable
    parts = elements(_JOINED.sub(r"\\text{\g<unit>} \\text{ \g<word> }", text))
    if len(parts) > 1:
        parted = [_part(part, right is None, keeps_letters) for part in parts]
        units = {unit for _, unit, _ in parted if unit}
        # Values of different units keep them, so that each stays with its own.
        if len(units) == 1 and not any(variable for _, _, variable in parted):
            text = ", ".join(value for value, _, _ in parted)
            return Answer(text, percent, units.pop(), False)
        if len(units) > 1:
            text = ", ".join(
                rf"{value}\text{{{unit}}}" if unit else value for value, unit, _ in parted
            )
        return Answer(text, percent, unit, False)
    value, named, variable = _part(text, right is None, keeps_letters)
    return Answer(value, percent, named or unit, variable)


def same_unit(first: str, second: str) -> bool:
    """Whether two units are spellings of one: equal, or one abbreviates the word of the other."""
    (first, _, power), (second, _, other_power) = first.partition("^"), second.partition("^")
    short, long = sorted((first.rstrip("s."), second.rstrip("s.")), key=len)
    if power != other_power or short == long:
        return power == other_power
    letters = iter(long)
    return len(long) >= 4 and long[0] == short[:1] and all(one in letters for one in short)


def elements(text: str) -> list[str]:
    """The elements of a list like "1, 2 and 3"; one where it is no list."""
    if not re.search(r"[,;]|\b(?:and|or)\b", text):
        return [text]
    parts, begin, depth, at = [], 0, 0, 0
    while at < len(text):
        found = _SEPARATOR.match(text, at) if depth == 0 else None
        if found and (at == 0 or text[at - 1] != "\\"):
            parts.append(text[begin:at].strip())
            begin = at = found.end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    parts.append(text[begin:].strip())
    return parts if all(parts) else [text]


def stated_words(text: str, *, as_right: bool = True) -> str:
    r"""The words that a text consists of, in small letters; "" where it may be a formula.

    as_right: of the right answer. Outside of `\text` four letters and more are a word there, if
    they are not in the order of the alphabet, as those of a product like abcd are.
    """
    found = _ONLY_WORDS.fullmatch(plain(text))
    if not found:
        return ""
    words = " ".join((found["text"] or found["bare"]).lower().split())
    letters = [letter for letter in words if letter.isalpha()]
    if as_right and found["bare"] and (len(letters) < 4 or letters == sorted(letters)):
        return ""
    return words


def both_signs(text: str) -> str:
    r"""Writes each element with \pm or \mp as two: in a fraction the parser knows neither."""
    if not re.search(r"\\(?:pm|mp)(?![A-Za-z])", text):
        return text
    found = []
    for part in elements(text):
        for plus, minus in (("+", "-"), ("-", "+")):
            one = re.sub(r"\\pm(?![A-Za-z])", plus, part)
            found.append(re.sub(r"\\mp(?![A-Za-z])", minus, one))
    return ", ".join(dict.fromkeys(found))


def decimals(text: str) -> dict[Fraction, int]:
    """The decimal fractions written in a text, without sign, and their number of places."""
    found: dict[Fraction, int] = {}
    for match in _DECIMAL.finditer(text):
        places = len(match[0].partition(".")[2])
        value = Fraction(match[0])
        found[value] = max(places, found.get(value, 0))
    return found


def _from_builder(text: str) -> str:
    found = _BUILDER.fullmatch(text)
    return found["condition"] if found else text


def _without_currency(text: str) -> tuple[str, str]:
    found = _CURRENCY.match(text)
    if not found or (found[0].strip("+- ") == "$" and text.count("$") % 2 == 0):
        return re.sub(r"\\\$|\$", "", text).strip(), ""
    sign = "dollar" if "$" in found[0] else found[0][len(found["sign"]) :].strip().strip("\\")
    return found["sign"] + re.sub(r"\\\$|\$", "", text[found.end() :]).strip(), sign


def _part(text: str, is_right: bool, keeps_letters: bool) -> tuple[str, str, bool]:
    """A value, its unit or "", and whether it ends in letters that may be variables."""
    unit = ""
    while found := _TEXT_UNIT.search(text):
        name, rest = found["unit"].strip(" ~()"), text[: found.start()].rstrip()
        letter = found["font"] == "mathrm" and len(name) == 1 and name not in _SINGLE
        if letter or not re.search(r"[\w})]$|\\circ$", rest) or not _is_unit(name):
            break
        slash = "/" if found[0].lstrip(" ~").startswith("/") else ""
        text, unit = rest, slash + _unit(name, found["power"]) + unit
    if not unit:
        words = _WORDS.search(text)
        if words and _VALUE.fullmatch(text, 0, words.start()) and re.search(r"\d", text):
            name, before = words["unit"], text[: words.start()]
            apart = not re.search(r"[\d}]$", before)
            short = len(name) == 1 and name.isascii()
            if before.rstrip().endswith("\\circ"):  # 37 ^\circ C
                variable = False
            elif is_right:
                variable = short or (not apart and name not in _ATTACHED)
            else:
                known = name in _SINGLE or (not short and (apart or name in _ATTACHED))
                variable = keeps_letters or not (known or len(name) > 3)
            variable = variable or not _is_unit(name) or not before.strip()
            if variable:
                return text, "", True
            text, unit = before.rstrip(" ~"), _unit(name, words["power"])
    if degrees := _DEGREES.search(text):
        text, unit = text[: degrees.start()], "degree" + unit
    return without_trailing_marks(text), unit, False


def _is_unit(name: str) -> bool:
    """Whether words are a noun phrase, as units and counted things are."""
    name = re.sub(r"(?<=[A-Za-z])\s+(?:squared|cubed)$", "", name.lower())
    return bool(name) and not _NOT_A_UNIT.search(name) and not re.search(r"[=<>\\]", name)


def _unit(name: str, power: str | None) -> str:
    """A unit's name and power: "square cm", "cm squared" and "cm^2" are one."""
    name = " ".join(name.lower().split())
    exponent = re.sub(r"[\s{}^]", "", power or "")
    for value, words in (("2", r"square|sq\.?|squared"), ("3", r"cubic|cu\.?|cubed")):
        bare = re.sub(rf"^(?:{words})\s+|\s+(?:{words})$", "", name)
        if bare != name:
            name, exponent = bare, value
    name = _UNIT_NAMES.get(name, name).replace(" ", "")
    return f"{name}^{exponent}" if exponent else name


def _times(found: re.Match[str]) -> str:
    opened, closed = bool(found["open"]), bool(found["close"])
    rest = r"\text{ " if opened and not closed else "}" if closed and not opened else " "
    return rf"\times {_NUMBER_WORDS[found['word']]}{rest}"


def _mixed(found: re.Match[str]) -> str:
    whole, numerator, denominator = found.groups()
    if int(numerator) >= int(denominator):
        return found[0]
    return rf"{whole}\frac{{{numerator}}}{{{denominator}}}"
