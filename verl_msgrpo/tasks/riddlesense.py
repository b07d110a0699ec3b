"""RiddleSense: riddles with five options. Its test split has no answers."""

from collections.abc import Mapping

from verl_msgrpo.tasks.fields import Example, FieldError, note, shown, struct, text, texts
from verl_msgrpo.tasks.prompts import question_with_options
from verl_msgrpo.tasks.rows import Problem

MAX_OPTIONS = 26


def from_columns(example: Example) -> Problem:
    """The hub's rows: question, answerKey, choices{label: [..], text: [..]}."""
    choices = struct(example, "choices")
    labels = texts(choices.get("label"), "choices.label")
    options = texts(choices.get("text"), "choices.text")
    return _problem(example, text(example, "question"), labels, options)


def from_release(example: Example) -> Problem:
    """The authors' rows: id, answerKey, question{stem, choices: [{label, text}, ..]}."""
    question = struct(example, "question")
    choices = question.get("choices")
    if not isinstance(choices, list) or not all(isinstance(c, Mapping) for c in choices):
        raise FieldError(f"question.choices is {shown(choices)}; it must be a list of structs")
    labels = texts([choice.get("label") for choice in choices], "question.choices.label")
    options = texts([choice.get("text") for choice in choices], "question.choices.text")
    return _problem(example, text(question, "stem"), labels, options)


def _problem(example: Example, question: str, labels: list[str], options: list[str]) -> Problem:
    answer = note(example, "answerKey")
    if not answer:
        raise FieldError(
            "answerKey is empty: the test split has no answers, take the validation split"
        )
    if not 2 <= len(labels) == len(options) <= MAX_OPTIONS or len(set(labels)) < len(labels):
        raise FieldError(f"choices has the labels {shown(labels)} for {len(options)} texts")
    if answer not in labels:
        raise FieldError(f"answerKey is {answer!r}, which is none of the labels {shown(labels)}")
    return Problem(
        text=question_with_options(question, options),
        ground_truth="ABCDEFGHIJKLMNOPQRSTUVWXYZ"[labels.index(answer)],
        id=note(example, "id"),
        num_options=len(options),
    )
