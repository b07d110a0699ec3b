"""Short answers found by searching (HotpotQA, NQ): `<answer>Paris</answer>`.

The rules:

- The answer is the last closed pair of tags in the final turn: text in observations never counts,
  and neither does an answer that a search follows. Of nested tags the innermost pair counts.
- More than `max_answers` opened tags in that turn are no answer at all.
- `em`, `f1` and `sub_em` (the gold's words are in the answer, in a row) are each the best over the
  accepted answers.
- Answers are compared by HotpotQA's rules (hotpotqa/hotpot, hotpot_evaluate_v1.py): lower case,
  without ASCII punctuation and a/an/the, single blanks; yes and no never score in part. Beyond
  those, `normalize` drops punctuation of any script, knows Unicode dashes, keeps numbers whole and
  answers that consist of dropped parts alone.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from verl_msgrpo.common.numbers import integer, not_allowed
from verl_msgrpo.rewards.ground_truth import accepted_answers
from verl_msgrpo.rewards.outcome import Alarm, Outcome, scored
from verl_msgrpo.rewards.response import OBSERVATION_TAGS, final_turn, is_cut_off, last_answer_tag

_KEYS = ("em", "f1", "sub_em")
_ALARM = Alarm("search_qa")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_DASHES = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# A sign or a mark that belongs to a number: 3.14, 12:30, 1994-96, -5.
_IN_NUMBER = re.compile(r"((?<=\d)[^\w\s](?=\d)|(?<![^\s(])-(?=\d))")
_CLOSED_ANSWERS = ("yes", "no", "noanswer")


@scored(_ALARM, keys=_KEYS)
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
) -> Outcome:
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
    if metric not in _KEYS:
        raise not_allowed("metric", "em, f1 or sub_em", metric)
    most = integer("max_answers", max_answers, 1)
    golds = [_normalized_gold(gold) for gold in accepted_answers(ground_truth)]
    text = final_turn(solution_str, observation_tags)
    truncated = is_cut_off(text, extra_info)
    tag = last_answer_tag(text)
    if tag is None or not tag.content or tag.opened > most:
        return Outcome(pred=tag.content if tag else "", truncated=truncated)
    prediction = normalize(tag.content)
    parts = {
        "em": max(exact_match(prediction, gold) for gold in golds),
        "f1": max(f1_score(prediction, gold) for gold in golds),
        "sub_em": max(contains(prediction, gold) for gold in golds),
    }
    return Outcome(
        value=parts[metric],
        correct=parts["sub_em" if metric == "sub_em" else "em"] == 1,
        format_ok=True,
        pred=tag.content,
        truncated=truncated,
        parts=parts,
    )


class _Punctuation(dict[int, int | None]):
    """For str.translate: drops ASCII punctuation and every Unicode character of category P."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        ascii_mark = code < 128 and character.isprintable() and not character.isalnum()
        drop = (ascii_mark and character != " ") or unicodedata.category(character)[0] == "P"
        self[code] = None if drop else code
        return self[code]


_PUNCTUATION = _Punctuation()


def normalize(text: str) -> str:
    """Lower case, no punctuation, no articles, single blanks.

    Punctuation inside a number stays, but for the comma of thousands. What is left without any
    article, or without any punctuation, keeps it: "A" is an answer.
    """
    text = _DASHES.sub("-", unicodedata.normalize("NFC", text).lower())
    pieces = _IN_NUMBER.split(_THOUSANDS.sub("", text))
    pieces[::2] = [piece.translate(_PUNCTUATION) for piece in pieces[::2]]
    words = "".join(pieces)
    for candidate in (_ARTICLES.sub(" ", words), words, text):
        if squeezed := " ".join(candidate.split()):
            return squeezed
    return ""


def exact_match(prediction: str, gold: str) -> float:
    """1.0 where two normalised answers are equal and not empty."""
    return float(bool(gold) and prediction == gold)


def f1_score(prediction: str, gold: str) -> float:
    """Overlap of the words of two normalised answers; yes and no count in full or not at all."""
    if prediction in _CLOSED_ANSWERS or gold in _CLOSED_ANSWERS:
        return exact_match(prediction, gold)
    words, gold_words = prediction.split(), gold.split()
    common = sum((Counter(words) & Counter(gold_words)).values())
    return 2 * common / (len(words) + len(gold_words)) if common else 0.0


def contains(prediction: str, gold: str) -> float:
    """1.0 where the words of a normalised gold stand in the answer in a row; yes, no: equality."""
    if gold in _CLOSED_ANSWERS:
        return exact_match(prediction, gold)
    return float(bool(gold) and f" {gold} " in f" {prediction} ")


@lru_cache(maxsize=4096)  # a group's responses share the golds
def _normalized_gold(text: str) -> str:
    return normalize(text)
