"""One reward for mixed training: picks the task by a row's `data_source`.

The table is in `sources`: which of our rewards scores a source, and which sources are left to
verl's own scorer (`verl.utils.reward_score.default_compute_score`) because it compares text and no
more. A source that is in neither is an error, and `tasks` adds to the table.

The dict has the keys of all tasks for every row, 0 where one does not apply, because verl collates
the rows of a batch. verl's own scorer gets the model's own text alone. Of its result, a number or a
dict, `score` is taken, cut off at 0 and 1; `acc` is its own, or else 1 for a score of 1; `pred` and
the parts are its own where it has them.
"""

import importlib
import math
from collections.abc import Mapping

from verl_msgrpo.rewards.outcome import Alarm, Outcome, Reward, scored
from verl_msgrpo.rewards.response import final_turn, is_cut_off
from verl_msgrpo.rewards.sources import REWARDS, is_scored_by_verl, reward_name_of

PARTS = ("em", "f1", "sub_em", "hedged", "passed")
_ALARM = Alarm("dispatch")


@scored(_ALARM, keys=PARTS)
def compute_score(
    data_source: object,
    solution_str: object,
    ground_truth: object,
    extra_info: object = None,
    *,
    tasks: Mapping[str, str] | None = None,
    math_answer: Mapping[str, object] | None = None,
    multiple_choice: Mapping[str, object] | None = None,
    code_tests: Mapping[str, object] | None = None,
    search_qa: Mapping[str, object] | None = None,
    **_: object,
) -> Outcome | Reward:
    """Scores one response by the reward of its task; never raises.

    Args:
        data_source: picks the task, see above.
        solution_str: the decoded response, observations included.
        ground_truth: as the task's reward has it.
        extra_info: as the task's reward has it.
        tasks: further data sources and the names of their tasks.
        math_answer: keyword arguments of that reward.
        multiple_choice: keyword arguments of that reward.
        code_tests: keyword arguments of that reward.
        search_qa: keyword arguments of that reward.

    Returns:
        `score`, `acc`, `em`, `f1`, `sub_em`, `hedged`, `passed`, `format_ok`, `truncated`,
        `timeout`, `error`, `pred`.
    """
    options = {
        "math_answer": math_answer,
        "multiple_choice": multiple_choice,
        "code_tests": code_tests,
        "search_qa": search_qa,
    }
    source = str(data_source)
    task = (tasks or {}).get(source) or reward_name_of(source)
    if task is None and is_scored_by_verl(source):
        return _by_verl(source, solution_str, ground_truth, extra_info)
    if task is None:
        raise ValueError(
            f"data_source {source!r} has no reward; reward_kwargs.tasks={{{source!r}:math_answer}} "
            f"gives it one of {', '.join(REWARDS)}"
        )
    if task not in REWARDS:
        raise ValueError(f"{source!r} has task {task!r}, none of {', '.join(REWARDS)}")
    module = importlib.import_module(f"verl_msgrpo.rewards.{task}")
    row = (data_source, solution_str, ground_truth, extra_info)
    reward: Reward = module.compute_score(*row, **(options[task] or {}))
    return reward


def _by_verl(
    data_source: str, solution_str: object, ground_truth: object, extra_info: object
) -> Outcome:
    from verl.utils.reward_score import default_compute_score

    text = final_turn(solution_str)
    result = default_compute_score(data_source, text, ground_truth, extra_info)
    found = result if isinstance(result, Mapping) else {"score": result}
    value = float(found["score"])
    if not math.isfinite(value):
        raise ValueError(f"verl's own scorer gives {value} for {data_source!r}")
    return Outcome(
        value=value,
        correct=bool(found.get("acc", value >= 1)),
        pred=str(found.get("pred") or ""),
        truncated=is_cut_off(text, extra_info),
        parts={key: float(found[key]) for key in PARTS if key in found},
    )
