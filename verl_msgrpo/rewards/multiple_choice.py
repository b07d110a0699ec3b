r"""Multiple choice (RiddleSense, MedQA): the letter of one option.

The rules:

- The letter is read from the last `\boxed{}` or `<answer>` of the final turn, whichever ends
  later. Where there is neither, from the last statement ("The answer is B ..."), or from a
  response that is a letter or ends in a line that is one.
- Naming several options is wrong. So is a letter beyond the options, and a marker that is empty.
- A statement is right or wrong like a marker, but only a marker has `format_ok`.

How many options there are comes from the row's `extra_info`: `num_options` (a number), or
`options` or `choices` (a mapping of letters to texts, a list of texts, or RiddleSense's
`{"label": [...], "text": [...]}`). Without any, every letter from A to Z may be chosen.
"""

from collections.abc import Mapping, Sequence, Sized

from verl_msgrpo.rewards.extract import boxes, last_answer_tag
from verl_msgrpo.rewards.ground_truth import GroundTruthError, accepted_answers
from verl_msgrpo.rewards.model_text import OBSERVATION_TAGS, final_turn, is_cut_off
from verl_msgrpo.rewards.option_letters import (
    NONE,
    Letters,
    read_bare,
    read_content,
    read_statement,
)
from verl_msgrpo.rewards.outcome import Alarm, Outcome, Reward, score_safely

_KEYS = ("hedged",)
_ALARM = Alarm("multiple_choice")


def compute_score(
    data_source: object,
    solution_str: object,
    ground_truth: object,
    extra_info: object = None,
    *,
    format_bonus: float = 0.0,
    statements: bool = True,
    observation_tags: Sequence[str] = OBSERVATION_TAGS,
    **_: object,
) -> Reward:
    r"""Scores one response; never raises.

    Args:
        data_source: not looked at.
        solution_str: the decoded response, observations included.
        ground_truth: the letter of the right option.
        extra_info: may hold the options, see above, and `truncated`.
        format_bonus: share of the score for a `\boxed{}` or `<answer>` that names one option, right
            or wrong (0 to 1).
        statements: whether an answer without a marker counts.
        observation_tags: names of the tags around observations.

    Returns:
        `score` = (1 - format_bonus) * acc + format_bonus * format_ok, `acc`, `hedged`, `format_ok`,
        `truncated`, `timeout` (always 0), `error`, `pred` (the letter, or what is in its place).
    """

    def score() -> Outcome:
        gold = _gold_letter(ground_truth)
        options = option_count(extra_info)
        if options and ord(gold) - ord("A") >= options:
            raise GroundTruthError(f"option {gold} is the right one of {options} options")
        text = final_turn(solution_str, observation_tags)
        marked, content, left_open = _marker(text)
        letters = NONE
        if marked:
            letters = read_content(content)
        elif statements and not left_open:
            letters = read_statement(text)
            if not letters.named:
                letters = read_bare(text)
        choice = letters.choice
        valid = bool(choice) and (not options or ord(choice) - ord("A") < options)
        correct = valid and choice == gold
        return Outcome(
            value=float(correct),
            correct=correct,
            format_ok=marked and valid,
            pred=choice or content or _listing(letters),
            truncated=left_open or is_cut_off(text, extra_info),
            parts={"hedged": float(len(letters.named) > 0 and not choice)},
        )

    return score_safely(score, keys=_KEYS, alarm=_ALARM, format_bonus=format_bonus)


def option_count(extra_info: object) -> int:
    """How many options a row has, 0 if it does not say."""
    if not isinstance(extra_info, Mapping):
        return 0
    number = extra_info.get("num_options")
    if number is not None:
        return int(number)
    options = extra_info.get("options")
    options = extra_info.get("choices") if options is None else options
    if isinstance(options, Mapping):
        # Parquet pads the structs of rows with fewer options by nulls.
        options = options.get("label", [key for key, text in options.items() if text is not None])
    return len(options) if isinstance(options, Sized) and not isinstance(options, str) else 0


def _marker(text: str) -> tuple[bool, str, bool]:
    """Whether there is a box or an answer tag, the content of the later one, is one left open."""
    found = boxes(text)
    tag = last_answer_tag(text)
    box_end = found.last.end if found.last else -1
    if tag and tag.end > box_end:
        return True, tag.content, False
    if found.last:
        return True, found.last.content, found.left_open
    return False, "", found.left_open


def _gold_letter(ground_truth: object) -> str:
    answers = accepted_answers(ground_truth)
    letter = read_content(answers[0]).choice
    if len(answers) > 1 or not letter:
        raise GroundTruthError(f"the ground truth is no option letter: {answers[0][:40]!r}")
    return letter


def _listing(letters: Letters) -> str:
    return ", ".join(letters.named)
