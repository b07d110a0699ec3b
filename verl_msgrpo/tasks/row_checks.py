"""What verl and our rewards need of a row and of its columns: pure checks, without files.

The checks of columns and rows return (field, what is wrong with it) pairs, none where all is right.
`unusable` asks a row's reward whether it could accept the row's ground truth at all.
"""

import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from verl_msgrpo.rewards.code.cases import read_cases
from verl_msgrpo.rewards.ground_truth import GroundTruthError, accepted_answers
from verl_msgrpo.rewards.sources import reward_name_of
from verl_msgrpo.tasks.fields import shown

Fault = tuple[str, str]

TOOLLESS_AGENT = "single_turn_agent"  # what verl runs for rows that name no agent loop
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string)
_LIST_TYPES = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def column_problems(schema: pa.Schema, prompt_key: str = "prompt") -> list[Fault]:
    """Columns that are missing or of a type that verl cannot train on."""
    return list(_column_problems({field.name: field.type for field in schema}, prompt_key))


def row_problems(row: Mapping[str, object], prompt_key: str = "prompt") -> list[Fault]:
    """Values of one row that are null, empty or of the wrong kind; absent columns are passed over.

    Args:
        row: as `pyarrow.Table.to_pylist` gives it.
        prompt_key: the column of the prompts, verl's `data.prompt_key`.
    """
    return list(_row_problems(row, prompt_key))


def type_differences(first: pa.DataType, other: pa.DataType, name: str) -> list[Fault]:
    """Where two files' columns differ, so that verl cannot put them together; null fits all.

    A field that only one struct has is null for the other's rows, or refused, depending on the
    release of `datasets`.
    """
    return list(_type_differences(first, other, name))


def _column_problems(types: Mapping[str, pa.DataType], prompt_key: str) -> Iterator[Fault]:
    for name in (prompt_key, "data_source", "reward_model", "extra_info"):
        if name not in types:
            yield name, "the column is missing"
    prompt = types.get(prompt_key)
    if prompt is not None and not _is_messages(prompt):
        yield prompt_key, f"is {prompt}; it must be a list of structs with role and content"
    for name in ("data_source", "agent_name"):
        if name in types and not _is_text(types[name]):
            yield name, f"is {types[name]}; it must be a string"
    reward_model = types.get("reward_model")
    if reward_model is not None and not pa.types.is_struct(reward_model):
        yield "reward_model", f"is {reward_model}; it must be a struct with ground_truth"
    elif reward_model is not None and reward_model.get_field_index("ground_truth") < 0:
        yield "reward_model.ground_truth", "the field is missing"
    extra_info = types.get("extra_info")
    if extra_info is not None and not pa.types.is_struct(extra_info):
        yield "extra_info", f"is {extra_info}; it must be a struct"


def _row_problems(row: Mapping[str, object], prompt_key: str) -> Iterator[Fault]:
    if prompt_key in row:
        yield from _prompt_problems(row[prompt_key], prompt_key)
    for name in ("data_source", "agent_name"):
        if name in row and not _says_something(row[name]):
            yield name, f"is {shown(row[name])}"
    reward_model = row.get("reward_model")
    if isinstance(reward_model, Mapping):
        if "ground_truth" in reward_model and not _says_something(reward_model["ground_truth"]):
            yield "reward_model.ground_truth", f"is {shown(reward_model['ground_truth'])}"
    elif "reward_model" in row:
        yield "reward_model", f"is {shown(reward_model)}"
    if "extra_info" in row:
        extra_info = row["extra_info"]
        if not isinstance(extra_info, Mapping) or not extra_info:
            yield "extra_info", f"is {shown(extra_info)}"
        elif all(value is None for value in extra_info.values()):
            yield "extra_info", "holds only nulls"


def _prompt_problems(prompt: object, name: str) -> Iterator[Fault]:
    if not isinstance(prompt, Sequence) or isinstance(prompt, str) or not prompt:
        yield name, f"is {shown(prompt)}; it must be a list of messages"
        return
    for index, message in enumerate(prompt):
        if not isinstance(message, Mapping):
            yield f"{name}[{index}]", f"is {shown(message)}; it must have role and content"
            continue
        for key in ("role", "content"):
            if not _says_something(message.get(key)):
                yield f"{name}[{index}].{key}", f"is {shown(message.get(key))}"


def _type_differences(first: pa.DataType, other: pa.DataType, name: str) -> Iterator[Fault]:
    if first == other or pa.types.is_null(first) or pa.types.is_null(other):
        return
    if pa.types.is_struct(first) and pa.types.is_struct(other):
        here, there = ({f.name: f.type for f in kind} for kind in (first, other))
        for key in sorted(here.keys() | there.keys()):
            if key not in there:
                yield (
                    f"{name}.{key}",
                    "the field is missing here; at best, verl fills it with nulls",
                )
            elif key not in here:
                yield (
                    f"{name}.{key}",
                    "the field is missing there; at best, verl fills it with nulls",
                )
            else:
                yield from _type_differences(here[key], there[key], f"{name}.{key}")
    elif _is_any(first, _LIST_TYPES) and type(first) is type(other):
        yield from _type_differences(first.value_type, other.value_type, f"{name}[]")
    else:
        yield name, f"is {other} here and {first} there"


def _says_something(value: object) -> bool:
    """Whether a value is neither null nor empty, nor made of such values alone."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, Mapping):
        return any(_says_something(item) for item in value.values())
    if isinstance(value, Sequence):
        return any(_says_something(item) for item in value)
    return value is not None


def _is_messages(kind: pa.DataType) -> bool:
    if not _is_any(kind, _LIST_TYPES) or not pa.types.is_struct(kind.value_type):
        return False
    return all(kind.value_type.get_field_index(name) >= 0 for name in ("role", "content"))


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or _is_any(kind, _TEXT_TYPES)


def _is_any(kind: pa.DataType, tests: Sequence[object]) -> bool:
    return any(callable(test) and test(kind) for test in tests)


# --- Ground truths --------------------------------------------------------------------------------

# How the prompts ask for the answer, by the name of the reward.
_FORMS = {
    "math_answer": "\\boxed{%s}",
    "multiple_choice": "\\boxed{%s}",
    "search_qa": "<answer>%s</answer>",
}


def unusable(data_source: str, ground_truth: object, extra_info: object) -> str:
    """Why no response could be right; "" if one can, or if none of our rewards scores the row.

    The reward gets the right answer itself, in the form that the prompt asks for. Of programs, the
    tests are read as the reward reads them.

    Raises:
        ImportError: the reward needs a package that is not installed.
    """
    name = reward_name_of(data_source)
    if name is None:
        return ""
    try:
        if name == "code_tests":
            read_cases(ground_truth, extra_info)
            return ""
        answers = accepted_answers(ground_truth)
        reward = importlib.import_module(f"verl_msgrpo.rewards.{name}")
        # The very same text is right even where nothing else can be compared with it.
        if name == "math_answer" and (problem := reward.unreadable(ground_truth)):
            return f"is {shown(ground_truth)}: {problem}"
    except GroundTruthError as error:
        return f"cannot be scored: {error}"
    compute_score = reward.compute_score
    with _silent_rewards():
        accepted = all(
            compute_score(data_source, _FORMS[name] % answer, ground_truth, extra_info)["acc"] == 1
            for answer in answers
        )
    if accepted:
        return ""
    options = extra_info.get("num_options") if isinstance(extra_info, Mapping) else None
    among = f" of {options} options" if options else ""
    return f"is {shown(ground_truth)}{among}, which its reward does not accept as an answer"


@contextmanager
def _silent_rewards() -> Iterator[None]:
    """Rewards warn about rows that they cannot score; here that is the result."""
    logger = logging.getLogger("verl_msgrpo.rewards.outcome")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
