"""Reward for mixed training: each row by the reward of its data_source.

    reward.custom_reward_function.path=reward_fns/dispatch.py
    +reward.custom_reward_function.reward_kwargs.math_answer.timeout_s=5
    +reward.custom_reward_function.reward_kwargs.code_tests.partial=True
    '+reward.custom_reward_function.reward_kwargs.tasks={"my/code":code_tests}'

Each task's keyword arguments stand below its name; its own file says which there are.

data_source                                                          task
HuggingFaceH4/aime_2024, BytedTsinghua-SIA/DAPO-Math-17k, math_dapo,
hiyouga/geometry3k, numina_aops_forum, numina_synthetic_math,
numina_amc_aime, numina_synthetic_amc, numina_cn_k12,
numina_olympiads                                                     math_answer
INK-USC/riddle_sense, GBaker/MedQA-USMLE-4-options                   multiple_choice
livecodebench/code_generation_lite, codecontests, apps, codeforces,
taco                                                                 code_tests
hotpotqa/hotpot_qa, hotpotqa, nq, searchR1_hotpotqa, searchR1_nq     search_qa
openai/gsm8k, lighteval/MATH, DigitalLearningGmbH/MATH-lighteval,
HuggingFaceH4/MATH-500, math, math_dapo_reasoning, aime*,
searchR1_triviaqa, searchR1_popqa, searchR1_2wikimultihopqa,
searchR1_musique, searchR1_bamboogle                                 verl's own scorer
any other                                                            none: error = 1

Keys, the same for every row: score, acc, em, f1, sub_em, hedged, passed, format_ok, truncated,
timeout, error, pred. Those that a task does not have are 0.

reward_kwargs (default):
    tasks (none)             further data sources, and the task of each
    math_answer, multiple_choice, code_tests, search_qa (none)  keyword arguments of that reward

The rules in full: verl_msgrpo/rewards/dispatch.py.
"""

from verl_msgrpo.rewards.dispatch import compute_score

__all__ = ["compute_score"]
