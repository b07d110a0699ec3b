"""Reward for question answering with search: `<answer>Paris</answer>` in the final turn.

    reward.custom_reward_function.path=reward_fns/search_qa.py
    +reward.custom_reward_function.reward_kwargs.metric=f1

acc    1 if the last answer of the final turn matches an accepted answer exactly (HotpotQA's rules)
score  (1 - format_bonus) * metric + format_bonus * format_ok, between 0 and 1

Keys, the same on every path: score, acc, em, f1, sub_em, format_ok, truncated, timeout, error,
pred.

reward_kwargs (default):
    metric ("em")         what is trained on: em, f1, or sub_em (the answer contains a right one)
    format_bonus (0.0)    share of the score for a well-formed answer, right or wrong
    max_answers (10)      more answers than this in the final turn are none
    observation_tags      names of the tags around observations ([tool_response, information])

The rules in full: verl_msgrpo/rewards/search_qa.py.
"""

from verl_msgrpo.rewards.search_qa import compute_score

__all__ = ["compute_score"]
