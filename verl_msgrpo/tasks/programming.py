"""Programming: LiveCodeBench, and verl's code sets for training (Eurus-2-RL, DeepCoder)."""

import json

from verl_msgrpo.tasks import private_tests, verl_rows
from verl_msgrpo.tasks.code_tests import as_ground_truth, parse, read_any, read_cases
from verl_msgrpo.tasks.fields import Example, FieldError, note, text
from verl_msgrpo.tasks.prompts import code_problem
from verl_msgrpo.tasks.rows import Problem


def from_livecodebench(example: Example) -> Problem:
    """question_content, starter_code, public and private tests, metadata, contest_date."""
    tests = read_cases(text(example, "public_test_cases"), "public_test_cases")
    private = private_tests.decode(text(example, "private_test_cases"), "private_test_cases")
    tests += read_cases(private, "private_test_cases")
    fn_name = None
    if any(test["testtype"] == "functional" for test in tests):
        fn_name = _func_name(example)
    return Problem(
        text=code_problem(
            text(example, "question_content"), fn_name, note(example, "starter_code")
        ),
        ground_truth=as_ground_truth(tests, fn_name, "private_test_cases"),
        id=note(example, "question_id"),
        origin=note(example, "platform"),
        kind="functional" if fn_name else "stdin",
        difficulty=note(example, "difficulty"),
        date=note(example, "contest_date")[:10],
    )


def from_verl(example: Example) -> Problem:
    """Rows in verl's format whose ground truth holds tests, as Eurus-2-RL's code part."""
    verl_rows.refuse_others(example, "code", "coding", "programming")
    field = "reward_model.ground_truth"
    tests, fn_name = read_any(verl_rows.ground_truth(example), field)
    return Problem(
        text=code_problem(verl_rows.problem_text(example), fn_name),
        ground_truth=as_ground_truth(tests, fn_name, field),
        id=verl_rows.row_id(example),
        origin=note(example, "data_source"),
        kind="functional" if fn_name else "stdin",
    )


def from_tests(example: Example) -> Problem:
    """DeepCoder's rows: problem, tests, starter_code."""
    tests, fn_name = read_any(example.get("tests"), "tests")
    return Problem(
        text=code_problem(text(example, "problem"), fn_name, note(example, "starter_code")),
        ground_truth=as_ground_truth(tests, fn_name, "tests"),
        kind="functional" if fn_name else "stdin",
    )


def _func_name(example: Example) -> str:
    metadata = parse(text(example, "metadata"), "metadata")
    name = metadata.get("func_name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise FieldError(f"metadata has no func_name for functional tests: {json.dumps(name)}")
    return name
