"""Which reward scores a row, by its `data_source`: the one table for dispatch, check-data and docs.

What is in neither table has no reward, rather than whatever a release of verl would do with it:
some of verl's scorers evaluate or run text that a model wrote, in the process that trains.
`prime_math` (numina_*) calls `eval`, `geo3k` parses by sympy's `parse_expr`, which does, and
`prime_code` (codecontests, apps, codeforces, taco) runs programs unguarded. Their sources have
rewards of ours. Nothing is imported here, so that looking a source up costs nothing.
"""

from collections.abc import Mapping
from types import MappingProxyType

REWARDS = ("math_answer", "multiple_choice", "search_qa", "code_tests")

TABLE: Mapping[str, str] = MappingProxyType(
    {
        "HuggingFaceH4/aime_2024": "math_answer",
        "BytedTsinghua-SIA/DAPO-Math-17k": "math_answer",
        "math_dapo": "math_answer",
        "numina_aops_forum": "math_answer",
        "numina_synthetic_math": "math_answer",
        "numina_amc_aime": "math_answer",
        "numina_synthetic_amc": "math_answer",
        "numina_cn_k12": "math_answer",
        "numina_olympiads": "math_answer",
        "hiyouga/geometry3k": "math_answer",
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
)
"""data_source -> the module in `verl_msgrpo.rewards` with its `compute_score`."""

BY_VERL: Mapping[str, str] = MappingProxyType(
    {
        "openai/gsm8k": "gsm8k",
        "lighteval/MATH": "math_reward",
        "DigitalLearningGmbH/MATH-lighteval": "math_reward",
        "HuggingFaceH4/MATH-500": "math_reward",
        "math": "math_dapo",
        "math_dapo_reasoning": "math_dapo",
        "searchR1_triviaqa": "search_r1_like_qa_em",
        "searchR1_popqa": "search_r1_like_qa_em",
        "searchR1_2wikimultihopqa": "search_r1_like_qa_em",
        "searchR1_musique": "search_r1_like_qa_em",
        "searchR1_bamboogle": "search_r1_like_qa_em",
    }
)
"""data_source -> the module in `verl.utils.reward_score` that scores it. Each of them finds the
answer by patterns and compares strings; none evaluates what a model wrote (verl 0.9.1)."""

# verl scores each data_source that begins so by math_dapo.
BY_VERL_PREFIX = "aime"


def reward_name_of(data_source: str) -> str | None:
    """The name of our reward, one of `REWARDS`; None for what verl scores, or nobody does."""
    return TABLE.get(data_source)


def is_scored_by_verl(data_source: str) -> bool:
    """Whether verl's own scorer scores it, by comparing text alone."""
    return data_source in BY_VERL or data_source.startswith(BY_VERL_PREFIX)
