r"""Mathematics: AIME, MATH and verl's own math rows (DAPO-Math-17k)."""

from verl_msgrpo.rewards.extract import boxes
from verl_msgrpo.tasks import verl_rows
from verl_msgrpo.tasks.fields import Example, FieldError, as_text, note, text
from verl_msgrpo.tasks.rows import Problem


def from_answer(example: Example) -> Problem:
    """AIME's rows: problem, answer, id, year."""
    return Problem(
        text=text(example, "problem"),
        ground_truth=text(example, "answer"),
        id=note(example, "id"),
        date=note(example, "year"),
    )


def from_solution(example: Example) -> Problem:
    r"""MATH's rows: problem, level, type, and the answer in the last `\boxed{}` of the solution."""
    answer = note(example, "answer")
    if not answer:
        box = boxes(text(example, "solution")).last
        if box is None or not box.content:
            raise FieldError("solution has no answer in \\boxed{}")
        answer = box.content
    return Problem(
        text=text(example, "problem"),
        ground_truth=answer,
        id=note(example, "unique_id"),
        kind=note(example, "type", "subject"),
        difficulty=note(example, "level"),
    )


def from_verl(example: Example) -> Problem:
    """Rows in verl's format whose ground truth is one answer, as DAPO-Math-17k's."""
    verl_rows.refuse_others(example, "math", "mathematics")
    return Problem(
        text=verl_rows.problem_text(example),
        ground_truth=as_text(verl_rows.ground_truth(example), "reward_model.ground_truth"),
        id=verl_rows.row_id(example),
        origin=note(example, "data_source"),
    )
