"""MedQA-USMLE: questions of medical examinations with four (or five) options."""

from verl_msgrpo.tasks.fields import Example, FieldError, as_text, note, struct, text
from verl_msgrpo.tasks.prompts import question_with_options
from verl_msgrpo.tasks.rows import Problem


def from_row(example: Example) -> Problem:
    """question, options{A..D}, answer_idx, and meta_info (step1, step2&3)."""
    # Parquet pads the structs of rows with fewer options by nulls.
    options = {key: value for key, value in struct(example, "options").items() if value is not None}
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(options)]
    if len(options) < 2 or sorted(options) != list(letters):
        raise FieldError(f"options has the letters {sorted(options)}; they must be A, B, ...")
    answer = text(example, "answer_idx")
    if answer not in options:
        raise FieldError(f"answer_idx is {answer!r}, which is none of the options {letters}")
    lines = [as_text(options[letter], f"options.{letter}") for letter in letters]
    return Problem(
        text=question_with_options(text(example, "question"), lines),
        ground_truth=answer,
        num_options=len(lines),
        kind=note(example, "meta_info"),
    )
