"""The last fenced Python block of a text, in linear time."""

import re
from typing import NamedTuple

_PYTHON = ("python", "python3", "py", "py3", "pypy3", "")
_LABEL_END = re.compile(r"[\s{:,]")


class Blocks(NamedTuple):
    """The program in the last closed Python block, None without one; is a block left open."""

    last: str | None
    left_open: bool


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
