r"""Every public form of rows that the tasks read, and the problem that each row holds.

A reader takes the columns of one row and returns a `TaskProblem`. For a row that cannot be used it
raises FieldError, or GroundTruthError for tests of programs; both name the field. `registry.py`
says which data set has which form.
"""

import json
import re
import string
from collections.abc import Mapping

from verl_msgrpo.rewards.code.cases import Suite, canonical_json, read_cases, read_livecodebench
from verl_msgrpo.rewards.response import boxes
from verl_msgrpo.tasks.fields import (
    Example,
    FieldError,
    NotOfTask,
    as_text,
    note,
    shown,
    struct,
    text,
    texts,
)
from verl_msgrpo.tasks.prompts import code_problem, question_with_options
from verl_msgrpo.tasks.rows import TaskProblem

# --- Rows that are in verl's format already -------------------------------------------------------

VERL_COLUMNS = ("prompt", "reward_model")

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


def _only(example: Example, *abilities: str) -> None:
    """Raises NotOfTask for a row whose `ability` is another than these."""
    ability = note(example, "ability").lower()
    if ability and ability not in abilities:
        raise NotOfTask


def _asked(example: Example) -> str:
    """The last message of the user, without the instructions of known data sets."""
    prompt = example.get("prompt")
    if not isinstance(prompt, list):
        raise FieldError(f"prompt is {shown(prompt)}; it must be a list of messages")
    asked = [m.get("content") for m in prompt if isinstance(m, dict) and m.get("role") == "user"]
    if not asked:
        raise FieldError("prompt has no message from the user")
    problem = as_text(asked[-1], "prompt")
    for instruction in _INSTRUCTIONS:
        problem = instruction.sub("", problem).strip()
    if not problem:
        raise FieldError("prompt holds instructions but no problem")
    return problem


def _row_id(example: Example) -> str:
    """The `index` (DAPO's are texts) or `id` of the row's extra_info, "" without one."""
    extra_info = example.get("extra_info")
    return note(extra_info, "index", "id") if isinstance(extra_info, Mapping) else ""


# --- Mathematics ----------------------------------------------------------------------------------


def math_with_answer(example: Example) -> TaskProblem:
    """AIME's rows: problem, answer, id, year."""
    return TaskProblem(
        text=text(example, "problem"),
        ground_truth=text(example, "answer"),
        id=note(example, "id"),
        date=note(example, "year"),
    )


def math_with_solution(example: Example) -> TaskProblem:
    r"""MATH's rows: problem, level, type, and the answer in the last `\boxed{}` of the solution."""
    answer = note(example, "answer")
    if not answer:
        box = boxes(text(example, "solution")).last
        if box is None or not box.content:
            raise FieldError("solution has no answer in \\boxed{}")
        answer = box.content
    return TaskProblem(
        text=text(example, "problem"),
        ground_truth=answer,
        id=note(example, "unique_id"),
        kind=note(example, "type", "subject"),
        difficulty=note(example, "level"),
    )


def math_of_verl(example: Example) -> TaskProblem:
    """Rows in verl's format whose ground truth is one answer, as in DAPO-Math-17k."""
    _only(example, "math", "mathematics")
    answer = struct(example, "reward_model").get("ground_truth")
    return TaskProblem(
        text=_asked(example),
        ground_truth=as_text(answer, "reward_model.ground_truth"),
        id=_row_id(example),
        origin=note(example, "data_source"),
    )


# --- Multiple choice ------------------------------------------------------------------------------


def riddlesense_columns(example: Example) -> TaskProblem:
    """The hub's rows: question, answerKey, choices{label: [..], text: [..]}."""
    choices = struct(example, "choices")
    labels = texts(choices.get("label"), "choices.label")
    options = texts(choices.get("text"), "choices.text")
    return _riddle(example, text(example, "question"), labels, options)


def riddlesense_release(example: Example) -> TaskProblem:
    """The authors' rows: id, answerKey, question{stem, choices: [{label, text}, ..]}."""
    question = struct(example, "question")
    choices = question.get("choices")
    if not isinstance(choices, list) or not all(isinstance(c, Mapping) for c in choices):
        raise FieldError(f"question.choices is {shown(choices)}; it must be a list of structs")
    labels = texts([choice.get("label") for choice in choices], "question.choices.label")
    options = texts([choice.get("text") for choice in choices], "question.choices.text")
    return _riddle(example, text(question, "stem"), labels, options)


def _riddle(example: Example, question: str, labels: list[str], options: list[str]) -> TaskProblem:
    answer = note(example, "answerKey")
    if not answer:
        raise FieldError(
            "answerKey is empty: the test split has no answers; use the validation split"
        )
    letters = string.ascii_uppercase
    if not 2 <= len(labels) == len(options) <= len(letters) or len(set(labels)) < len(labels):
        raise FieldError(f"choices has the labels {shown(labels)} for {len(options)} texts")
    if answer not in labels:
        raise FieldError(f"answerKey is {answer!r}; the labels are {shown(labels)}")
    return TaskProblem(
        text=question_with_options(question, options),
        ground_truth=letters[labels.index(answer)],
        id=note(example, "id"),
        num_options=len(options),
    )


def medqa(example: Example) -> TaskProblem:
    """MedQA-USMLE: question, options{A..D}, answer_idx, and meta_info (step1, step2&3)."""
    # Parquet pads the structs of rows with fewer options by nulls.
    options = {key: value for key, value in struct(example, "options").items() if value is not None}
    letters = string.ascii_uppercase[: len(options)]
    if len(options) < 2 or sorted(options) != list(letters):
        raise FieldError(f"options has the letters {sorted(options)}; they must be A, B, ...")
    answer = text(example, "answer_idx")
    if answer not in options:
        raise FieldError(f"answer_idx is {answer!r}; the options are {letters}")
    lines = [as_text(options[letter], f"options.{letter}") for letter in letters]
    return TaskProblem(
        text=question_with_options(text(example, "question"), lines),
        ground_truth=answer,
        num_options=len(lines),
        kind=note(example, "meta_info"),
    )


# --- Questions to be answered by searching --------------------------------------------------------


def hotpotqa(example: Example) -> TaskProblem:
    """HotpotQA's rows: question, answer, id, type, level. The contexts belong into an index."""
    return TaskProblem(
        text=text(example, "question"),
        ground_truth=text(example, "answer"),
        id=note(example, "id", "_id"),
        kind=note(example, "type"),
        difficulty=note(example, "level"),
    )


def search_r1(example: Example) -> TaskProblem:
    """Search-R1's rows: question, golden_answers, id, data_source (nq or hotpotqa).

    One answer stays as it is; several become the JSON of Search-R1's {"target": [...]}.
    """
    answers = list(dict.fromkeys(texts(example.get("golden_answers"), "golden_answers")))
    return TaskProblem(
        text=text(example, "question"),
        ground_truth=answers[0] if len(answers) == 1 else json.dumps({"target": answers}),
        id=note(example, "id"),
        origin=note(example, "data_source"),
    )


# --- Programs -------------------------------------------------------------------------------------


def livecodebench(example: Example) -> TaskProblem:
    """question_content, starter_code, public and private tests, metadata, contest_date."""
    suite = read_livecodebench(
        text(example, "public_test_cases"),
        text(example, "private_test_cases"),
        note(example, "metadata"),
    )
    statement, starter_code = text(example, "question_content"), note(example, "starter_code")
    return TaskProblem(
        text=code_problem(statement, suite.function, starter_code),
        ground_truth=canonical_json(suite),
        id=note(example, "question_id"),
        origin=note(example, "platform"),
        kind=_kind(suite),
        difficulty=note(example, "difficulty"),
        date=note(example, "contest_date")[:10],
    )


def programs_of_verl(example: Example) -> TaskProblem:
    """Rows in verl's format whose ground truth holds tests, as in Eurus-2-RL's code part."""
    _only(example, "code", "coding", "programming")
    truth = struct(example, "reward_model").get("ground_truth")
    suite = read_cases(truth, example.get("extra_info"), "reward_model.ground_truth")
    return TaskProblem(
        text=code_problem(_asked(example), suite.function),
        ground_truth=canonical_json(suite),
        id=_row_id(example),
        origin=note(example, "data_source"),
        kind=_kind(suite),
    )


def programs_with_tests(example: Example) -> TaskProblem:
    """DeepCoder's rows: problem, tests, starter_code."""
    suite = read_cases(example.get("tests"), field="tests")
    return TaskProblem(
        text=code_problem(text(example, "problem"), suite.function, note(example, "starter_code")),
        ground_truth=canonical_json(suite),
        kind=_kind(suite),
    )


def _kind(suite: Suite) -> str:
    return "functional" if suite.function else "stdin"
