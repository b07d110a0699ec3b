"""Rows that are in verl's format already, of somebody else: their problem without instructions."""

import re

from verl_msgrpo.tasks.fields import Example, FieldError, NotOfTask, as_text, note, shown, struct

COLUMNS = ("prompt", "reward_model")

# What known data sets write around a problem, in conflict with our own instructions. Applied to
# texts without blanks at their ends.
_INSTRUCTIONS = (
    # DAPO-Math-17k
    re.compile(
        r"\ASolve the following math problem step by step\.\s+The last line of your response "
        r"should be of the form Answer:[^\n]{0,200}\n"
    ),
    re.compile(
        r"(?:\A|\n)Remember to put your answer on its own line after \"Answer:\"[^\n]{0,200}\Z"
    ),
    # Eurus-2-RL
    re.compile(r"(?:\A|\n)Present the answer in LaTe?X format: \\boxed\{Your answer\}\Z", re.I),
    re.compile(
        r"(?:\A|\n)Write Python code to solve the problem\. Present the code in\s+```python\s+"
        r"Your code\s+```\s+at the end\.(?:\s+You need to think first[^\n]{0,80})?\Z"
    ),
)


def refuse_others(example: Example, *abilities: str) -> None:
    """Raises NotOfTask for a row whose `ability` is none of these."""
    ability = note(example, "ability").lower()
    if ability and ability not in abilities:
        raise NotOfTask


def problem_text(example: Example) -> str:
    """The last message of the user, without the instructions of known data sets.

    Raises:
        FieldError: there is none, or nothing is left of it.
    """
    prompt = example.get("prompt")
    if not isinstance(prompt, list):
        raise FieldError(f"prompt is {shown(prompt)}; it must be a list of messages")
    asked = [m.get("content") for m in prompt if isinstance(m, dict) and m.get("role") == "user"]
    if not asked:
        raise FieldError("prompt has no message of the user")
    text = as_text(asked[-1], "prompt")
    for instruction in _INSTRUCTIONS:
        text = instruction.sub("", text).strip()
    if not text:
        raise FieldError("prompt holds instructions but no problem")
    return text


def ground_truth(example: Example) -> object:
    """What the row's reward compares with, in the data set's own form; raises FieldError."""
    return struct(example, "reward_model").get("ground_truth")


def row_id(example: Example) -> str:
    """The `index` (DAPO's are texts) or `id` of the row's extra_info, "" without one."""
    extra_info = example.get("extra_info")
    return note(extra_info, "index", "id") if isinstance(extra_info, dict) else ""
