r"""What is read out of a response: the model's final word, and the answer or program in it.

verl hands a reward the whole decoded response, tool observations included. Rewards here look at
the final turn alone: the text after the last observation. Pairs of tags could not be trusted to
delimit an observation, because a retrieved passage may hold a closing tag of its own; whatever
stands before the last closing tag is therefore never looked at.

In that text, `boxes` and `last_answer_tag` find the answer between markers, `stated_answer` the one
in a sentence, and `python_blocks` the program. All of them take linear time.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OBSERVATION_TAGS = ("tool_response", "information")
# A final turn is looked at from its end; this is about 50,000 tokens of English.
MAX_CHARS = 200_000

# Headers and ends of turns, for responses decoded with their special tokens and for transcripts
# that still hold the prompt.
_OWN_HEADERS = ("<|im_start|>assistant", "<|start_header_id|>assistant<|end_header_id|>")
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|im_start|>", "<|start_header_id|>")
# Up to four backslashes: models that write JSON or Python double them.
# A box without braces holds one number, letter or fraction; more would be another formula.
_BARE = (
    r"\s*(?P<bare>[-+]?\d+(?:,\d{3})*(?:\.\d+)?|\\[dtc]?frac\s*(?:\d\s*\d|\{[^{}]*\}\s*\{[^{}]*\})"
    r"|\\sqrt\s*(?:\d|\{[^{}]*\})|\\(?:text|mathrm|mathbf|textbf)\s*\{[^{}]*\}"
    r"|\\(?:pi|infty)(?![A-Za-z])|(?<=\s)[A-Za-z](?=\s*(?:[$.,;:!?)\\]|$)))(?!\s*[\^_!/\d])"
)
_BRACES = re.compile(
    rf"\\{{1,4}}(?:boxed|fbox)(?![A-Za-z])(?:(?P<box>\s*\{{)|{_BARE})"
    r"|\\.|(?P<open>\{)|(?P<close>\})",
    re.S,
)
_OPEN, _CLOSE = "<answer>", "</answer>"
_STATEMENT = re.compile(
    r"(?:\b(?i:answer|result|antwort|r[eé]ponse|respuesta)|答案)"
    r"(?:[\s*_]|(?i:is|be|ist|est|es|equals|therefore|thus))*(?:[:：=是为]|\b(?i:is|ist|est|es|equals))"
)
_MAX_STATED_CHARS = 500
_CLAUSE_END = re.compile(
    r"\n|[.;!?](?=\s|$)|,\s|\s(?:because|since|as|so|which|where|and|but|for|when|if)\b"
)
_PYTHON = ("python", "python3", "py", "py3", "pypy3", "")
_LABEL_END = re.compile(r"[\s{:,]")


class Box(NamedTuple):
    """A box: its content, where it ends in the text."""

    content: str
    end: int


class Boxes(NamedTuple):
    r"""What a text holds of `\boxed{...}` and `\fbox{...}`."""

    last: Box | None
    left_open: bool  # a box after the last closed one never closes
    outer: tuple[str, ...] = ()  # contents of the closed boxes that are in no other box


class Tag(NamedTuple):
    """An answer between tags: its content, where it ends, how many were opened in the text."""

    content: str
    end: int
    opened: int


class Blocks(NamedTuple):
    """The program in the last closed Python block, None without one; is a block left open."""

    last: str | None
    left_open: bool


def final_turn(solution: object, observation_tags: Sequence[str] = OBSERVATION_TAGS) -> str:
    """The model's own text after the last observation, without what others wrote after it.

    An observation that is opened and never closed takes the rest of the text with it. Anything but
    a string gives "".
    """
    if not isinstance(solution, str):
        return ""
    ends = (*_OWN_HEADERS, *(f"</{tag}>" for tag in observation_tags))
    begin = max((at + len(end) for end in ends if (at := solution.rfind(end)) >= 0), default=0)
    starts = (*_TURN_ENDS, *(f"<{tag}>" for tag in observation_tags))
    found = (solution.find(start, begin) for start in starts)
    finish = min((at for at in found if at >= 0), default=len(solution))
    text = solution[max(begin, finish - MAX_CHARS) : finish]
    # What is left of a ChatML header once the special tokens are gone.
    return text.lstrip().removeprefix("assistant\n") if begin else text


def is_cut_off(text: str, extra_info: object) -> bool:
    """Whether the response ended early: the row says so (`truncated`), or a tag is left open."""
    if isinstance(extra_info, Mapping) and extra_info.get("truncated"):
        return True
    return any(text.rfind(f"<{tag}>") > text.rfind(f"</{tag}>") for tag in ("think", "answer"))


def boxes(text: str) -> Boxes:
    r"""The box that closes last, braces matched and escaped ones skipped.

    A box inside a box is part of the outer one. TeX needs no braces around a single token:
    `\boxed5` and `\boxed \frac12` are boxes. A command that is followed by neither is none.
    """
    if "\\boxed" not in text and "\\fbox" not in text:
        return Boxes(None, False)
    last: Box | None = None
    stack: list[int | None] = []  # where the content of an open box begins, None for a plain brace
    closed: list[tuple[int, str]] = []  # where the outer boxes begin, and what they hold
    for match in _BRACES.finditer(text):
        begin: int | None = None
        if match["box"]:
            stack.append(match.end())
        elif match["open"]:
            stack.append(None)
        elif match["close"] and stack:
            begin = stack.pop()
            if begin is not None:
                last = Box(text[begin : match.start()].strip(), match.end())
        elif match["bare"]:
            begin = match.start("bare")
            last = Box(match["bare"], match.end("bare"))
        if begin is not None and last:
            while closed and closed[-1][0] > begin:
                closed.pop()
            closed.append((begin, last.content))
    left_open = any(begin is not None and (not last or begin > last.end) for begin in stack)
    return Boxes(last, left_open, tuple(content for _, content in closed))


def last_answer_tag(text: str) -> Tag | None:
    """The innermost text of the last closed pair of answer tags; None if no pair is closed."""
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, end) if end >= 0 else -1
    if start < 0:
        return None
    content = text[start + len(_OPEN) : end].split(_CLOSE, 1)[0].strip()
    return Tag(content, end + len(_CLOSE), text.count(_OPEN))


def stated_answer(text: str) -> str:
    """What follows the last "answer is" or "answer:", up to the end of its clause; "" if none."""
    statements = list(_STATEMENT.finditer(text))
    if not statements:
        return ""
    begin = statements[-1].end()
    rest = text[begin : begin + _MAX_STATED_CHARS].replace("**", "").strip()
    for opening, closing in (("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if rest.startswith(opening):
            return rest[len(opening) :].partition(closing)[0].strip()
    return _CLAUSE_END.split(rest, maxsplit=1)[0].strip()


def python_blocks(text: str) -> Blocks:
    """Finds fences (CommonMark's: three or more ` or ~ at the start of a line, closed alike).

    Among the blocks labelled as Python the last one counts; without any, the last that has no
    label. The indentation of the fence is taken off its lines.
    """
    if "```" not in text and "~~~" not in text:
        return Blocks(None, False)
    last: dict[bool, str] = {}  # by whether it is labelled
    lines: list[str] = []
    fence, indent, label = "", 0, ""
    for line in text.replace("\r\n", "\n").split("\n"):
        if fence:
            bare = line.strip()
            if len(bare) >= len(fence) and not bare.strip(fence[0]):
                if label in _PYTHON:
                    last[bool(label)] = "\n".join(lines)
                fence = ""
            else:
                begin = min(indent, len(line) - len(line.lstrip(" \t")))
                lines.append(line[begin:])
        elif "```" in line or "~~~" in line:
            fence, label = _opening(line.strip())
            indent, lines = len(line) - len(line.lstrip(" \t")), []
    return Blocks(last.get(True, last.get(False)), bool(fence))


def _opening(line: str) -> tuple[str, str]:
    """The fence that a line opens a block with, "" if it opens none, and the block's label."""
    mark = line[0]
    rest = line.lstrip(mark)
    fence = line[: len(line) - len(rest)]
    if mark not in "`~" or len(fence) < 3 or (mark == "`" and "`" in rest):
        return "", ""
    return fence, _LABEL_END.split(rest.strip(), maxsplit=1)[0].lower()
