"""Exact match and F1 of short answers: HotpotQA's rules, with their blind spots mended.

Official: lower case, drop ASCII punctuation, drop a/an/the, squeeze blanks; yes and no never score
in part (hotpotqa/hotpot, hotpot_evaluate_v1.py). Mended, as stated by the functions below:
punctuation of any script, Unicode dashes, numbers, and answers that consist of dropped parts only.
"""

import re
import unicodedata
from collections import Counter

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_DASHES = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# A sign or a mark that belongs to a number: 3.14, 12:30, 1994-96, -5.
_IN_NUMBER = re.compile(r"((?<=\d)[^\w\s](?=\d)|(?<![^\s(])-(?=\d))")
_CLOSED_ANSWERS = ("yes", "no", "noanswer")


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
