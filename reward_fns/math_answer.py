r"""Reward for mathematics: the answer in `\boxed{}`, checked by math-verify.

    reward.custom_reward_function.path=reward_fns/math_answer.py
    +reward.custom_reward_function.reward_kwargs.format_bonus=0.1

acc    1 if the box that closes last in the final turn equals the ground truth
score  (1 - format_bonus) * acc + format_bonus * format_ok, between 0 and 1

Keys, the same on every path: score, acc, format_ok, truncated, timeout, error, pred.

reward_kwargs (default):
    lenient (False)       without a box, take what follows the last "answer is" or "answer:"
    format_bonus (0.0)    share of the score for a box that is not empty, right or wrong
    timeout_s (5.0)       hard limit in seconds for the check of one answer
    workers (2)           processes that check, per process that scores
    observation_tags      names of the tags around observations ([tool_response, information])

Needs `pip install '.[rewards]'` in a checkout. The rules: verl_msgrpo/rewards/math_answer.py.
"""

from verl_msgrpo.rewards.math_answer import compute_score

__all__ = ["compute_score"]
