r"""How a mathematical answer looks, as opposed to what it says: taken off before it is read.

Fonts, colours and sizes, blanks, trailing marks, Markdown, Unicode's mathematics, Python's
spelling (`sqrt(3)`, `2**10`, `pi`), commas in thousands, and TeX's arguments without braces
(`\frac12`). Each rule is about a kind of writing, never about a value.
"""

import re
import unicodedata

# What Unicode has of the mathematics that models write; superscripts, roots and fonts are below.
_UNICODE = str.maketrans(
    {
        **dict.fromkeys("−–—﹣", "-"),
        **dict.fromkeys("·⋅∙•", r"\cdot "),
        **dict.fromkeys("∕⁄÷", "/"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\u2061\u2062\ufeff\ufe0e\ufe0f", None),
        **dict.fromkeys("’‘′", "'"),
        **dict.fromkeys("°º˚", r"^\circ "),
        **dict.fromkeys("≤⩽≦", r"\le "),
        **dict.fromkeys("≥⩾≧", r"\ge "),
        **dict.fromkeys("∅⌀", r"\emptyset "),
        **dict.fromkeys("∖⧵", r"\setminus "),
        **dict.fromkeys("⟨〈", r"\langle "),
        **dict.fromkeys("⟩〉", r"\rangle "),
        **dict.fromkeys("∣｜", "|"),
        **dict.fromkeys("、", ","),
        **dict.fromkeys("。", "."),
        **{"∗": "*", "×": r"\times ", "∞": r"\infty ", "≠": r"\ne ", "≈": r"\approx "},
        **{"±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in "},
        **{"∉": r"\notin ", "⊂": r"\subset ", "⊆": r"\subseteq ", "→": r"\to "},
        **{"∧": r"\wedge ", "∨": r"\vee ", "≡": r"\equiv ", "…": r"\ldots ", "⋯": r"\cdots "},
        **{"∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "∂": r"\partial ", "∇": r"\nabla "},
        **{"⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil "},
        **{"∠": r"\angle ", "△": r"\triangle ", "⊥": r"\perp ", "∥": r"\parallel "},
        **{"ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}", "ℕ": r"\mathbb{N}"},
        **{"ℂ": r"\mathbb{C}", "∁": r"\complement ", "∀": r"\forall ", "∃": r"\exists "},
    }
)
_GREEK = {
    unicodedata.lookup(f"GREEK {size} LETTER {name.upper()}"): f"\\{written} "
    for name in (
        *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"),
        *("lamda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi"),
        *("psi", "omega"),
    )
    for size in ("SMALL", "CAPITAL")
    # The other capitals look like Latin letters and have no command.
    if size == "SMALL"
    or name in ("gamma", "delta", "theta", "lamda", "xi", "pi", "sigma", "phi", "psi", "omega")
    for spelled in (name.replace("lamda", "lambda"),)
    for written in (spelled if size == "SMALL" else spelled.capitalize(),)
}
_GREEK_TABLE = str.maketrans(_GREEK)
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣ", "0123456789+-()nix", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙᵢₓ", "0123456789+-()nix", strict=True))
_RUN = re.compile(f"[{''.join(_RAISED)}]+|[{''.join(_LOWERED)}]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
# Full-width forms, and letters and digits in mathematical fonts.
_COMPATIBLE = re.compile("[\uff01-\uff5e\U0001d400-\U0001d7ff]")
_ROOT = re.compile(r"(?P<sign>[√∛∜])\s*(?P<bare>\d+(?:\.\d+)?|\\?[A-Za-z]+)?")
_DEGREES = {"√": "", "∛": "[3]", "∜": "[4]"}

_FONTED = re.compile(
    r"\\(?P<font>boldsymbol|bm|pmb|math(?:bf|it|sf|tt|normal|rm)|text(?:bf|it|sf|tt|sl|sc|rm|md|up"
    r"|normal)?|emph|underline|ensuremath|[mh]box|boxed|fbox)\s*\{(?P<content>[^{}]*)\}"
)
# Around something with braces of its own.
_NESTED = re.compile(
    r"\\(?:boldsymbol|bm|pmb|math(?:bf|it|sf|tt|normal)|ensuremath|underline|text(?:bf|it)|emph"
    r"|boxed|fbox)\s*(?=\{[^{}]*\{)"
)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_NUMBER_OF = re.compile(rf"({_NUMBER.pattern})(\s+[A-Za-z][A-Za-z .]*)")
_COLOUR = re.compile(r"\\(?:text|fcolor|color)?color(?:box)?\s*(?:\[[^\]]*\])?\s*\{[^{}]*\}\s*")
_SWITCH = re.compile(
    r"\\(?:bf|it|rm|sf|tt|sl|sc|em|bfseries|itshape|rmfamily|tiny|scriptsize|footnotesize|small"
    r"|normalsize|large|Large|LARGE|huge|Huge|displaystyle|textstyle|scriptstyle|limits|nolimits"
    r"|[Bb]igg?[lrm]?|boldmath|unboldmath|mathstrut|strut|null|relax|nobreak|allowbreak"
    r"|centering|noindent)(?![A-Za-z])\s*"
)
_TAG = re.compile(r"\\tag\*?\s*\{[^{}]*\}|\\label\s*\{[^{}]*\}")
_BLANK = re.compile(
    r"\\(?:[;:>]|(?:q?quad|enspace|thinspace|medspace|thickspace|hfill)(?![A-Za-z]))"
)
_TRAILING = re.compile(r"(?:\s|~|\\[ ,;:!>]|(?<!\.)\.{1,2}(?!\.)|[,;])+$")
_TEXT_MARKS = re.compile(r"[\s.,;]+\}$")
_MARKDOWN = re.compile(r"(\*{1,3}|_{2,3}|`+)(?=\S)(.+?)(?<=\S)\1", re.S)
_DELIMITERS = ((r"\(", r"\)"), (r"\[", r"\]"), ("$$", "$$"), ("$", "$"))

_ASSURED = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\!,)\s*(?=\d{3}(?!\d))")
_COMMAS = re.compile(r"(?<![\d.,\w])[1-9]\d{0,2}(?:,\d{3})+(?![\d]|,\d)")
_PARTED = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:(?:\\[ ,;!]|~| )\d{3})+(?![\w/]|\s*/)")

_PYTHON_NAME = re.compile(
    r"(?<![A-Za-z\\])(?P<name>sqrt|pi|a?sinh?|a?cosh?|a?tanh?|arcsin|arccos|arctan|log|ln|exp)"
    r"(?![A-Za-z{])"
)
_ARGUMENT = re.compile(r"\s*(?:\{|(?P<token>\\[A-Za-z]+|\d|[A-Za-z]))")
_TAKES = re.compile(
    r"\\[dtc]?frac(?![A-Za-z])|\\[dt]?binom(?![A-Za-z])|\\sqrt(?![A-Za-z])(?!\s*\[)"
)


def plain(text: str) -> str:
    """The answer without its appearance, for the parser; its value stays the same."""
    text = _ascii(_unwrapped(text))
    if "\\" in text:
        text = _plain_tex(text)
    text = without_trailing_marks(_unwrapped(text))
    text = _ASSURED.sub("", text)
    text = _PARTED.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    return _braced(_from_python(text))


def without_trailing_marks(text: str) -> str:
    """Takes off blanks, full stops and commas at the end; not the dots of an ellipsis."""
    text = _TRAILING.sub("", text).rstrip("\\")  # what is left of "\ " or "\\" at the end
    text = _TRAILING.sub("", text)
    if text.endswith("}") and "\\text" in text:
        text = _TEXT_MARKS.sub(_end_of_text, text)
    return text


def without_thousands(text: str) -> str:
    """Takes the commas out of 1,200 where they do not part the elements of a bracket."""
    depth, levels = 0, []
    for at, character in enumerate(text):
        if character in "([" or (character == "{" and text[at - 1 : at] == "\\"):
            depth += 1
        elif character in ")]" or (character == "}" and text[at - 1 : at] == "\\"):
            depth -= 1
        levels.append(depth)
    return _COMMAS.sub(
        lambda found: found[0] if levels[found.start()] > 0 else found[0].replace(",", ""), text
    )


def closing(text: str, begin: int) -> int:
    """Where the bracket that opens at `begin` closes; -1 if it does not."""
    opened, closed = text[begin], {"(": ")", "{": "}", "[": "]"}[text[begin]]
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] == opened) - (text[at] == closed)
        if not depth:
            return at
    return -1


def _unwrapped(text: str) -> str:
    """Without the signs of mathematics and of Markdown around the whole text."""
    while True:
        text, before = text.strip(), text
        for opening, ending in _DELIMITERS:
            if text.startswith(opening) and text.endswith(ending):
                inside = text[len(opening) : len(text) - len(ending)]
                if len(text) >= len(opening) + len(ending) and opening not in inside:
                    text = inside.strip()
        found = _MARKDOWN.fullmatch(text)
        if found and found[1] not in found[2]:
            text = found[2]
        if text == before.strip():
            return text


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    text = _COMPATIBLE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    text = _VULGAR.sub(lambda found: " " + unicodedata.normalize("NFKC", found[0]), text)
    text = _RUN.sub(_raised_or_lowered, text)
    text = text.translate(_GREEK_TABLE)
    text = _ROOT.sub(_root, text)
    return text.translate(_UNICODE).strip()


def _raised_or_lowered(found: re.Match[str]) -> str:
    mark, table = ("^", _RAISED) if found[0][0] in _RAISED else ("_", _LOWERED)
    return f"{mark}{{{''.join(table[character] for character in found[0])}}}"


def _root(found: re.Match[str]) -> str:
    root = rf"\sqrt{_DEGREES[found['sign']]}"
    if found["bare"]:
        return f"{root}{{{found['bare']}}}"
    rest = found.string[found.end() :]
    return f"{root}\0" if rest.startswith("(") else root  # see _from_python


def _plain_tex(text: str) -> str:
    text = _TAG.sub("", text)
    text = _COLOUR.sub("", text)
    if "matrix" not in text and "array" not in text and "cases" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = _SWITCH.sub("", text)
    text = re.sub(r"\\(?:lor|vee)(?![A-Za-z])", r"\\text{ or }", text)
    text = _NESTED.sub("", text)
    text = _FONTED.sub(_unfonted, text)
    return _BLANK.sub(" ", text).strip()


def _unfonted(found: re.Match[str]) -> str:
    """A font is dropped around mathematics; words in any font are text."""
    font, content = found["font"], found["content"].strip()
    whole = found.start() == 0 and found.end() == len(found.string)
    if _NUMBER.fullmatch(content):
        return content if whole else f"{{{content}}}"
    if whole and (counted := _NUMBER_OF.fullmatch(content)):  # \text{12 ways}
        return rf"{counted[1]}\text{{{counted[2]}}}"
    words = re.search(r"[A-Za-z]{2}|:", content) and "\\" not in content
    if font in ("boxed", "fbox") or (not words and not font.startswith(("text", "mathrm"))):
        return f"{{{content}}}"
    return found[0] if font == "mathrm" else rf"\text{{{found['content']}}}"


def _end_of_text(found: re.Match[str]) -> str:
    """Marks go from the end of a final text, but not from "p.m."."""
    before = found.string[: found.start()]
    opened = before.rfind("{")
    if not re.search(r"\\text\s*$", before[:opened]) or re.search(r"\.[A-Za-z]$", before):
        return found[0]
    return "}"


def _from_python(text: str) -> str:
    text = text.replace("**", "^")
    text = _PYTHON_NAME.sub(lambda found: _named(found["name"]), text)
    if "(" not in text:
        return text.replace("\0", "")
    # A root and a power take all of the bracket that follows.
    begin = 0
    while found := re.compile(r"(?:\\sqrt(?:\[\d\])?\s*\0?|\^)\s*(?=\()").search(text, begin):
        end = closing(text, found.end())
        if end < 0:
            break
        head = found[0].replace("\0", "").strip()
        text = f"{text[: found.start()]}{head}{{{text[found.end() + 1 : end]}}}{text[end + 1 :]}"
        begin = found.start() + len(head) + 1
    return text.replace("\0", "")


def _named(name: str) -> str:
    name = re.sub(r"^a(?=(?:sin|cos|tan))", "arc", name)
    return f"\\{name} "


def _braced(text: str) -> str:
    r"""TeX's arguments in braces: `\frac12`, `\frac\pi4`, `\sqrt3`, `\binom52`."""
    if "\\" not in text:
        return text
    begin = 0
    while found := _TAKES.search(text, begin):
        at = found.end()
        for _ in range(1 if found[0] == r"\sqrt" else 2):
            argument = _ARGUMENT.match(text, at)
            if not argument:
                break
            if argument["token"]:
                if argument["token"].startswith((r"\frac", r"\sqrt", r"\text")):
                    break  # it takes arguments of its own
                wrapped = f"{{{argument['token']}}}"
                text = text[:at] + wrapped + text[argument.end() :]
                at += len(wrapped)
            else:
                end = closing(text, argument.end() - 1)
                if end < 0:
                    return text
                text = text[:at] + text[argument.end() - 1 :]
                at = end + 1 - (argument.end() - 1 - at)
        begin = found.end()
    return text
