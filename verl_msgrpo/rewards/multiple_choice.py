r"""Multiple choice (RiddleSense, MedQA): the letter of one option.

The rules:

- The letter is read from the last `\boxed{}` or `<answer>` of the final turn, whichever ends
  later. Where there is neither, from the last statement ("The answer is B ..."), or from a
  response that is a letter or ends in a line that is one.
- Letters are upper case in running text, where "a" is an article.
- Naming several options (hedging) is wrong. That is a list of letters: "A or B", "A, B",
  "(A) or (B)", "A. cat or B. dog"; not any second letter: "B. Vitamin A" names one option.
- A letter beyond the options is wrong, and so is a marker that is empty.
- A statement is right or wrong like a marker, but only a marker has `format_ok`.

How many options there are comes from the row's `extra_info`: `num_options` (a number), or
`options` or `choices` (a mapping of letters to texts, a list of texts, or RiddleSense's
`{"label": [...], "text": [...]}`). Without any, every letter from A to Z may be chosen.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import NamedTuple

from verl_msgrpo.rewards.ground_truth import GroundTruthError, accepted_answers
from verl_msgrpo.rewards.outcome import Alarm, Outcome, scored
from verl_msgrpo.rewards.response import (
    OBSERVATION_TAGS,
    boxes,
    final_turn,
    is_cut_off,
    last_answer_tag,
)

_KEYS = ("hedged",)
_ALARM = Alarm("multiple_choice")
# Of a statement or the content of a box; what a letter needs is at its beginning.
_MAX_CHARS = 400
# Responses are searched for statements from their end.
_MAX_STATEMENT_CHARS = 20_000

_COMMAND = re.compile(r"\\[A-Za-z]+\*?|\\[,;:! ]")
_MARKUP = str.maketrans(dict.fromkeys("{}$*_`\"'“”‘’", " "))
_SPACES = re.compile(r"\s+")
_LABEL = re.compile(r"^(?i:(?:the )?(?:correct |final )?(?:option|choice|answer)(?: is)?)\b ?:? ?")
_LETTER = r"[(\[]?(?P<letter>[A-Z])(?![A-Za-z0-9])[)\]]?"
_FIRST = re.compile(_LETTER)
# Letters that go on a list: "or B" and "/B" always, "and B", ", B" unless a verb follows.
_NEXT = re.compile(
    r"[.:?]? ?\(?(?P<link>,? ?(?:and/or|or|oder|ou|o|/|\|)|,? ?(?:and|und|et|y|&|\+)|[,;]) ?"
    rf"{_LETTER}(?P<verb> (?:is|was|would|can|does|has) )?"
)
# Nothing but marks between two letters: "A B", "A. B. C.", "A? B?". Not "A. B cells".
_BESIDE = re.compile(rf"[ .:;?!)-]*{_LETTER}(?= ?(?:$|[.:;?!,)]| [A-Z](?![A-Za-z0-9])))")
# A second option with its text: "A. cat or B. dog", "A) cat, B) dog", "A: cat (B)".
_LATER = re.compile(
    rf"(?:\bor|\band|[,;/]) ?{_LETTER}(?:(?<=\))|[.:] ?(?=\w))"
    r"|(?:\(| )(?P<closed>[A-Z])\)"
)
_LOWER_ALONE = re.compile(r"^[(\[]?[a-z][)\]]?[.:]?$")
# In a box or a tag, "A car" is a text that begins with an article.
_ARTICLE = re.compile(r"^A (?!(?:because|since|as|is|was|or|and|for)\b)[a-z]")

# What a statement begins with. Looked for as plain text: a pattern over a long response is slow.
_SUBJECTS = ("answer", "antwort", "réponse", "reponse", "respuesta", "risposta", "ответ", "答案")
_QUALIFIED = ("option", "choice", "letter")
_QUALITIES = ("correct ", "right ", "best ", "final ")
_STATEMENT = re.compile(
    r"(?P<link>(?:[\s*_:：=–—-]|(?i:is|be|ist|est|es|è|would|should|could|might|may|can|must|will|"
    r"also|the|option|choice|letter|correct|most|likely|best|final|therefore|thus|clearly)\b|"
    r"是|为|選|选){1,24})"
    r"(?P<rest>[\s(\[{*_$`\"'\\]*(?:(?:text|textbf|mathrm|mathbf|boxed)\W{1,3})*[A-Z](?![A-Za-z0-9]))"
)
_LINKS = re.compile(r"[:：=–—是为-]|\b(?i:is|be|ist|est|es|è)\b")
_LETTER_FIRST = re.compile(r"\b(?P<letter>[A-Z])\)? (?i:is|would be) the $")


class Letters(NamedTuple):
    """The letters named, in order; more than one different letter is hedging."""

    named: tuple[str, ...]

    @property
    def choice(self) -> str:
        """The one letter named, "" if there is none or several."""
        return self.named[0] if len(set(self.named)) == 1 else ""


NONE = Letters(())


@scored(_ALARM, keys=_KEYS)
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
) -> Outcome:
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
        pred=choice or content or ", ".join(letters.named),
        truncated=left_open or is_cut_off(text, extra_info),
        parts={"hedged": float(len(letters.named) > 0 and not choice)},
    )


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


def read_content(content: str) -> Letters:
    r"""Letters of the content of a `\boxed{}` or an `<answer>`: "B", "(b)", "\text{B. a car}"."""
    text = _LABEL.sub("", plain(content[:_MAX_CHARS]))
    if _LOWER_ALONE.match(text):
        text = text.upper()
    if _ARTICLE.match(text):
        return NONE
    named, end = _list_of_letters(text)
    if named and (later := _BESIDE.match(text, end) or _LATER.search(text, end)):
        named.append(later[later.lastgroup or 0])
    return Letters(tuple(named))


def read_statement(text: str) -> Letters:
    """Letters of the last statement of an answer: "The answer is B because ..."."""
    text = text[-_MAX_STATEMENT_CHARS:]
    lower = text.lower()
    if len(lower) != len(text):  # a few capitals have two small characters
        lower = text
    subjects = [end for word in _SUBJECTS for _, end in _occurrences(lower, word)]
    for word in _QUALIFIED:
        found = _occurrences(lower, word)
        subjects += [end for begin, end in found if lower.endswith(_QUALITIES, 0, begin)]
    last, last_end = NONE, -1
    for end in sorted(subjects, reverse=True):
        match = _STATEMENT.match(text, end)
        if match and _LINKS.search(match["link"]):
            begin = match.start("rest")
            named, _ = _list_of_letters(plain(text[begin : begin + _MAX_CHARS]))
            last, last_end = Letters(tuple(named)), match.end()
            break
    # "B is the correct answer"
    starts = [begin for word in _QUALITIES for begin, _ in _occurrences(lower, word)]
    for begin in sorted(starts, reverse=True):
        first = _LETTER_FIRST.search(text[max(begin - 20, 0) : begin])
        if first and begin >= last_end:
            return Letters((first["letter"],))
    return last


def read_bare(text: str) -> Letters:
    """Letters of a response that is a letter, "B" or "B. a car", or whose last line is one."""
    lines = text.strip().rsplit("\n", 1)
    letters = read_content(lines[-1])
    if len(lines) == 1 or len(plain(lines[-1][:_MAX_CHARS]).strip("()[].: ")) == 1:
        return letters
    return NONE


def plain(text: str) -> str:
    """Text without LaTeX commands, braces, emphasis and quotes, single blanks."""
    text = unicodedata.normalize("NFKC", text)
    text = _COMMAND.sub(" ", text).translate(_MARKUP)
    text = _SPACES.sub(" ", text).strip()
    return re.sub(r"([(\[]) | (?=[)\].:,;])", r"\1", text)


def _list_of_letters(text: str) -> tuple[list[str], int]:
    """The letter that the text begins with and those listed after it, and where the list ends."""
    first = _FIRST.match(text)
    if first is None:
        return [], 0
    named, end = [first["letter"]], first.end()
    while (following := _NEXT.match(text, end)) is not None:
        # "B, A is a distractor" and "B and A is wrong" end the list.
        if following["verb"] and "or" not in following["link"]:
            break
        named.append(following["letter"])
        end = following.end()
    return named, end


def _occurrences(text: str, word: str) -> Iterator[tuple[int, int]]:
    """Where a word begins and ends in a text, each time."""
    begin = text.find(word)
    while begin >= 0:
        yield begin, begin + len(word)
        begin = text.find(word, begin + 1)
