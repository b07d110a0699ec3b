r"""What the model is asked, for every task in one place.

A template is the user's message with `{problem}` where the problem goes; other braces mean nothing,
so that `\boxed{}` can be written as it is. Each asks for the form that the task's reward reads.
"""

import string
from collections.abc import Sequence
from pathlib import Path

from verl_msgrpo.errors import UserError

PLACEHOLDER = "{problem}"
MAX_TEMPLATE_BYTES = 1 << 20

MATH = (
    "Solve the problem below. Think step by step, and put the final answer, and nothing else, in "
    "\\boxed{}.\n\n{problem}"
)
MULTIPLE_CHOICE = (
    "Answer the question below. Think step by step, then put the letter of the right option, and "
    "nothing else, in \\boxed{}.\n\n{problem}"
)
CODE = (
    "Solve the problem below in Python 3. Think step by step, then write the whole solution in one "
    "block that begins with ```python and ends with ```.\n\n{problem}"
)
# The tool itself is described by the chat template.
SEARCH_TOOL = (
    "Answer the question below. Think step by step. Whenever you are not certain of a fact, look "
    "it up with the search tool, one fact at a time; you may search several times. When you know "
    "the answer, give it between <answer> and </answer>, as short as possible and without an "
    "explanation, for example <answer>Beijing</answer>.\n\nQuestion: {problem}"
)
# Search-R1's text protocol, for models without a template for tools.
SEARCH_TEXT = (
    "Answer the question below. Think between <think> and </think> first, and again whenever you "
    "have read something new. To look up a fact, write <search> what you look for </search>; what "
    "is found follows between <information> and </information>. You may search several times. When "
    "you know the answer, give it between <answer> and </answer>, as short as possible and without "
    "an explanation, for example <answer> Beijing </answer>.\n\nQuestion: {problem}"
)

_STDIN = (
    "\n\nThe program reads from standard input and writes the answer to standard output, and "
    "nothing else."
)


def fill(template: str, problem: str) -> str:
    """The user's message."""
    return template.replace(PLACEHOLDER, problem)


def read_template(path: Path) -> str:
    """A template from a file.

    Raises:
        UserError: it cannot be read, is too large, or does not say where the problem goes.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEMPLATE_BYTES + 1)
        template = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the prompt template cannot be read: {error}") from None
    if len(data) > MAX_TEMPLATE_BYTES:
        raise UserError(f"{path}: the prompt template is longer than {MAX_TEMPLATE_BYTES} bytes")
    if PLACEHOLDER not in template:
        raise UserError(f"{path}: the prompt template lacks {PLACEHOLDER}, where the problem goes")
    return template.strip()


def question_with_options(question: str, options: Sequence[str]) -> str:
    """A question and its options, lettered from A."""
    letters = string.ascii_uppercase[: len(options)]
    lines = (f"{letter}. {text}" for letter, text in zip(letters, options, strict=True))
    return f"{question}\n\n" + "\n".join(lines)


def code_problem(statement: str, function: str, starter_code: str = "") -> str:
    """A programming problem and what its tests call: that function, or a program if it is ""."""
    if not function:
        return statement + _STDIN
    if starter_code.strip():
        return f"{statement}\n\nComplete this code:\n\n```python\n{starter_code.strip()}\n```"
    return f"{statement}\n\nWrite the function `{function}`; it returns the answer."
