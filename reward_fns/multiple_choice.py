r"""Reward for multiple choice: the letter in `\boxed{}` or `<answer>`, or a final statement.

    reward.custom_reward_function.path=reward_fns/multiple_choice.py
    +reward.custom_reward_function.reward_kwargs.format_bonus=0.1

acc    1 if the final turn settles on the right letter and on no other
score  (1 - format_bonus) * acc + format_bonus * format_ok, between 0 and 1

Keys, the same on every path: score, acc, hedged (several letters), format_ok (one letter in a box
or in tags), truncated, timeout, error, pred.

The row's extra_info may hold `num_options`, or `options` or `choices` as the data set has them.

reward_kwargs (default):
    format_bonus (0.0)    share of the score for a well-formed answer, right or wrong
    statements (True)     whether "The answer is B" or a bare letter counts without box and tags
    observation_tags      names of the tags around observations ([tool_response, information])

The rules in full: verl_msgrpo/rewards/multiple_choice.py.
"""

from verl_msgrpo.rewards.multiple_choice import compute_score

__all__ = ["compute_score"]
