r"""The last `\boxed{...}` and the last `<answer>...</answer>` of a text, in linear time."""

import re
from typing import NamedTuple

# Up to four backslashes: models that write JSON or Python double them.
_BRACES = re.compile(r"(?P<box>\\{1,4}(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.S)
_OPEN, _CLOSE = "<answer>", "</answer>"


class Box(NamedTuple):
    """A box: its content, where it ends in the text."""

    content: str
    end: int


class Boxes(NamedTuple):
    r"""What a text holds of `\boxed{...}` and `\fbox{...}`."""

    last: Box | None
    left_open: bool  # a box after the last closed one never closes


class Tag(NamedTuple):
    """An answer between tags: its content, where it ends, how many were opened in the text."""

    content: str
    end: int
    opened: int


def boxes(text: str) -> Boxes:
    """The box that closes last, braces matched and escaped ones skipped.

    A box inside a box is part of the outer one. A command without braces is no box.
    """
    if "\\boxed" not in text and "\\fbox" not in text:
        return Boxes(None, False)
    last: Box | None = None
    stack: list[int | None] = []  # where the content of an open box begins, None for a plain brace
    for match in _BRACES.finditer(text):
        if match["box"]:
            stack.append(match.end())
        elif match["open"]:
            stack.append(None)
        elif match["close"] and stack:
            begin = stack.pop()
            if begin is not None:
                last = Box(text[begin : match.start()].strip(), match.end())
    left_open = any(begin is not None and (not last or begin > last.end) for begin in stack)
    return Boxes(last, left_open)


def last_answer_tag(text: str) -> Tag | None:
    """The innermost text of the last closed pair of answer tags; None if no pair is closed."""
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, end) if end >= 0 else -1
    if start < 0:
        return None
    content = text[start + len(_OPEN) : end].split(_CLOSE, 1)[0].strip()
    return Tag(content, end + len(_CLOSE), text.count(_OPEN))
