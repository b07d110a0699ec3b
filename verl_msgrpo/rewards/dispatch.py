"""One reward for mixed training: picks the task by a row's `data_source`.

| data_source | task |
|---|---|
| HuggingFaceH4/aime_2024, BytedTsinghua-SIA/DAPO-Math-17k, math_dapo | math_answer |
| INK-USC/riddle_sense, GBaker/MedQA-USMLE-4-options | multiple_choice |
| livecodebench/code_generation_lite; codecontests, apps, codeforces, taco | code_tests |
| hotpotqa/hotpot_qa, hotpotqa, nq, searchR1_hotpotqa, searchR1_nq | search_qa |
| any other | verl's own scorer, `verl.utils.reward_score.default_compute_score` |

The dict has the keys of all tasks for every row, 0 where one does not apply, because verl collates
the rows of a batch. verl's own scorer gets the model's own text alone. Of its result, a number or a
dict, `score` is taken, cut off at 0 and 1; `acc` is its own, or else 1 for a score of 1; `pred` and
the parts are its own where it has them. It would run programs of the four code sets unguarded,
which is why those are not left to it.
"""

import importlib
import math
from collections.abc import Mapping

from verl_msgrpo.rewards.model_text import final_turn, is_cut_off
from verl_msgrpo.rewards.outcome import Alarm, Outcome, Reward, score_safely

TASKS = {
    "HuggingFaceH4/aime_2024": "math_answer",
    "BytedTsinghua-SIA/DAPO-Math-17k": "math_answer",
    "math_dapo": "math_answer",
    "INK-USC/riddle_sense": "multiple_choice",
    "GBaker/MedQA-USMLE-4-options": "multiple_choice",
    "livecodebench/code_generation_lite": "code_tests",
    "codecontests": "code_tests",
    "apps": "code_tests",
    "codeforces": "code_tests",
    "taco": "code_tests",
    "hotpotqa/hotpot_qa": "search_qa",
    "hotpotqa": "search_qa",
    "nq": "search_qa",
    "searchR1_hotpotqa": "search_qa",
    "searchR1_nq": "search_qa",
}
PARTS = ("em", "f1", "sub_em", "hedged", "passed")
_ALARM = Alarm("dispatch")


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
) -> Reward:
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
    scored: Reward | None = None

    def score() -> Outcome:
        nonlocal scored
        source = str(data_source)
        task = (tasks or {}).get(source) or TASKS.get(source)
        if task is None:
            return _by_verl(source, solution_str, ground_truth, extra_info)
        if task not in options:
            raise ValueError(f"{source!r} has task {task!r}, none of {', '.join(options)}")
        module = importlib.import_module(f"verl_msgrpo.rewards.{task}")
        arguments = (data_source, solution_str, ground_truth, extra_info)
        scored = module.compute_score(*arguments, **(options[task] or {}))
        return Outcome()

    result = score_safely(score, keys=PARTS, alarm=_ALARM, format_bonus=0.0)
    return result if scored is None else {key: scored.get(key, 0.0) for key in result}


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
