"""Ground truths that the row's own reward could never accept, for the data sources of our tasks.

Each check gives the reward the right answer itself, in the form that the prompt asks for. Tests of
programs can only be read.
"""

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from verl_msgrpo.rewards.ground_truth import GroundTruthError, accepted_answers
from verl_msgrpo.tasks.code_tests import as_ground_truth, read_any
from verl_msgrpo.tasks.fields import FieldError, shown
from verl_msgrpo.tasks.registry import (
    AIME24,
    DAPO_MATH,
    HOTPOTQA,
    LIVECODEBENCH,
    MEDQA,
    RIDDLESENSE,
)

_BOX, _TAGS = "\\boxed{%s}", "<answer>%s</answer>"
# data_source -> (module with `compute_score`, how the prompt wants the answer)
_REWARDS = {
    AIME24: ("verl_msgrpo.rewards.math_answer", _BOX),
    DAPO_MATH: ("verl_msgrpo.rewards.math_answer", _BOX),
    RIDDLESENSE: ("verl_msgrpo.rewards.multiple_choice", _BOX),
    MEDQA: ("verl_msgrpo.rewards.multiple_choice", _BOX),
    HOTPOTQA: ("verl_msgrpo.rewards.search_qa", _TAGS),
}
KNOWN_SOURCES = (*_REWARDS, LIVECODEBENCH)


def unusable(data_source: str, ground_truth: object, extra_info: object) -> str:
    """Why no response could be right, "" if one can, or if the data source is not one of ours.

    Raises:
        ImportError: the reward needs a package that is not installed.
    """
    if data_source == LIVECODEBENCH:
        return _unreadable_tests(ground_truth)
    if data_source not in _REWARDS:
        return ""
    module, form = _REWARDS[data_source]
    compute_score = importlib.import_module(module).compute_score
    try:
        answers = accepted_answers(ground_truth)
    except GroundTruthError as error:
        return str(error)
    with _silent_rewards():
        accepted = all(
            _accepts(compute_score, data_source, form % answer, ground_truth, extra_info)
            for answer in answers
        )
    if accepted:
        return ""
    options = extra_info.get("num_options") if isinstance(extra_info, Mapping) else None
    among = f" of {options} options" if options else ""
    return f"is {shown(ground_truth)}{among}, which its reward does not accept as an answer"


def _accepts(
    compute_score: Callable[..., Mapping[str, object]],
    data_source: str,
    solution: str,
    ground_truth: object,
    extra_info: object,
) -> bool:
    return compute_score(data_source, solution, ground_truth, extra_info)["acc"] == 1.0


def _unreadable_tests(ground_truth: object) -> str:
    try:
        tests, fn_name = read_any(ground_truth, "it")
        as_ground_truth(tests, fn_name, "it")
    except FieldError as error:
        return str(error)
    return ""


@contextmanager
def _silent_rewards() -> Iterator[None]:
    """Rewards warn about rows that they cannot score; here that is the result."""
    logger = logging.getLogger("verl_msgrpo.rewards.outcome")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
