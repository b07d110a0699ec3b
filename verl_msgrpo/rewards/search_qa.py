"""Short answers found by searching (HotpotQA, NQ): `<answer>Paris</answer>`.

The rules:

- The answer is the last closed pair of tags in the final turn: text in observations never counts,
  and neither does an answer that a search follows. Of nested tags the innermost pair counts.
- More than `max_answers` opened tags in that turn are no answer at all.
- `em`, `f1` and `sub_em` (the gold's words stand in the answer, in a row) are each the best over
  the accepted answers, after HotpotQA's normalisation, see `qa_metrics`.
"""

from collections.abc import Sequence
from functools import lru_cache

from verl_msgrpo.rewards import qa_metrics
from verl_msgrpo.rewards.extract import last_answer_tag
from verl_msgrpo.rewards.ground_truth import accepted_answers
from verl_msgrpo.rewards.model_text import OBSERVATION_TAGS, final_turn, is_cut_off
from verl_msgrpo.rewards.outcome import Alarm, Outcome, Reward, score_safely
from verl_msgrpo.rewards.settings import at_least

_KEYS = ("em", "f1", "sub_em")
_ALARM = Alarm("search_qa")
_normalize_gold = lru_cache(maxsize=4096)(qa_metrics.normalize)


def compute_score(
    data_source: object,
    solution_str: object,
    ground_truth: object,
    extra_info: object = None,
    *,
    metric: str = "em",
    format_bonus: float = 0.0,
    max_answers: int = 10,
    observation_tags: Sequence[str] = OBSERVATION_TAGS,
    **_: object,
) -> Reward:
    """Scores one response; never raises.

    Args:
        data_source: not looked at.
        solution_str: the decoded response, observations included.
        ground_truth: one answer, several, or a mapping with them under `target`.
        extra_info: may say `truncated`.
        metric: what is trained on, "em", "f1" or "sub_em". `acc` is em, or sub_em if that is it.
        format_bonus: share of the score for a well-formed answer, right or wrong (0 to 1).
        max_answers: more answers than this in the final turn are none.
        observation_tags: names of the tags around observations.

    Returns:
        `score` = (1 - format_bonus) * metric + format_bonus * format_ok, `acc`, `em`, `f1`,
        `sub_em`, `format_ok`, `truncated`, `timeout` (always 0), `error`, `pred`.
    """

    def score() -> Outcome:
        if metric not in _KEYS:
            raise ValueError(f"metric={metric!r} is none of {', '.join(_KEYS)}")
        at_least(1, max_answers=max_answers)
        golds = [_normalize_gold(gold) for gold in accepted_answers(ground_truth)]
        text = final_turn(solution_str, observation_tags)
        truncated = is_cut_off(text, extra_info)
        tag = last_answer_tag(text)
        if tag is None or not tag.content or tag.opened > max_answers:
            return Outcome(pred=tag.content if tag else "", truncated=truncated)
        prediction = qa_metrics.normalize(tag.content)
        parts = {
            "em": max(qa_metrics.exact_match(prediction, gold) for gold in golds),
            "f1": max(qa_metrics.f1_score(prediction, gold) for gold in golds),
            "sub_em": max(qa_metrics.contains(prediction, gold) for gold in golds),
        }
        return Outcome(
            value=parts[metric],
            correct=parts["sub_em" if metric == "sub_em" else "em"] == 1,
            format_ok=True,
            pred=tag.content,
            truncated=truncated,
            parts=parts,
        )

    return score_safely(score, keys=_KEYS, alarm=_ALARM, format_bonus=format_bonus)
