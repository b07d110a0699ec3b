"""The settings that verl prints into the log of a run.

verl 0.9's main_ppo pretty-prints its resolved configuration as a Python dict, and Ray puts the
name of the process before every line. Ray also cuts a line in two where a write ended, and puts
other output of the same process between lines.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

MAX_LINE_CHARS = 10_000
MAX_LINES_BEFORE = 20_000
MAX_LINES = 20_000
MAX_TRIES = 300

_PREFIX = re.compile(r"(?:\x1b\[\d+m)?(\(\w+ pid=\d+[^)]*\))(?:\x1b\[0m)? ")
_FIRST_KEY = "{'actor_rollout_ref':"
# The rest of a line that was cut within its indentation.
_VALUE = re.compile(r"""['"\[\]{}]|(?:-?[\d.e-]+|True|False|None)[,\]}]""")


def read_printed_settings(log: Path) -> dict[str, object] | None:
    """The nested settings; None where the log has none that can be read. Raises OSError."""
    with log.open(encoding="utf-8", errors="replace") as file:
        lines = iter(lambda: file.readline(MAX_LINE_CHARS), "")
        for line in itertools.islice(lines, MAX_LINES_BEFORE):
            process, text = _split(line)
            if text.startswith(_FIRST_KEY):
                rest = (_split(line) for line in itertools.islice(lines, MAX_LINES))
                return _parsed(text, (text for name, text in rest if name == process))
    return None


def _split(line: str) -> tuple[str, str]:
    """The process that Ray names, "" if none, and what it printed."""
    found = _PREFIX.match(line)
    return (found[1], line[found.end() :]) if found else ("", line)


def _parsed(text: str, lines: Iterator[str]) -> dict[str, object] | None:
    """The dict that begins with `text`. Nested dicts end in a brace too, so each is tried."""
    tries = 0
    for line in lines:
        text = text.rstrip()
        is_whole = text.endswith(",")
        if line.startswith(" "):
            text += "\n"
        elif is_whole and not _VALUE.match(line):
            continue  # a message between two lines
        text += line.rstrip()
        if not text.endswith("}"):
            continue
        try:
            settings = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            tries += 1
            if tries == MAX_TRIES:
                return None
        else:
            return settings if isinstance(settings, dict) else None
    return None
