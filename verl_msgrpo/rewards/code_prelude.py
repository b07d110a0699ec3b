"""The names that a program may use without importing them, as in LiveCodeBench's checker.

Solutions to LeetCode's tasks are written for an environment with `List`, `deque`, `heapq`, `inf`
and their like. Importing all of it takes longer than a sandbox does to start, so only what a
program's text mentions is imported.
"""

import builtins
import functools
import importlib
import re

# In this order, as later names hide earlier ones (LiveCodeBench, lcb_runner/evaluation).
_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json", "typing"),
)
_WORD = re.compile(r"[A-Za-z_]\w*")


def prelude(source: str) -> str:
    """Import statements for the names that occur in a program."""
    table = _table()
    return "".join(table[word] for word in sorted(set(_WORD.findall(source)) & table.keys()))


@functools.cache
def _table() -> dict[str, str]:
    """The import statement for each name."""
    table: dict[str, str] = {}
    for name in _MODULES:
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or vars(module)
        table.update(
            {word: f"from {name} import {word}\n" for word in public if not word.startswith("_")}
        )
    for word in vars(builtins):
        table.pop(word, None)
    return table | {name: f"import {name}\n" for name in _MODULES}
