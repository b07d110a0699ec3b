"""Passages as text for the model, within a budget.

The budget is in tokens of a tokenizer, or in UTF-8 bytes where there is none: a byte-level
tokenizer never needs more tokens than bytes, so that unit errs on the short side (English has four
to five bytes a token).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from verl_msgrpo.common.text import encodable

CUT = " [cut]"
LEFT_OUT = "[{count} more passages left out]\n"
NOTHING_FOUND = "No passages found.\n"
# A first line longer than this is not a title but a text without one.
MAX_TITLE_CHARS = 300
# A token rarely covers more characters than this; what lies beyond is not worth counting.
_CHARS_PER_UNIT = 16
_WORD_CHARS = 24
# Text that looks like a tag or a control token (<|im_end|>, </tool_response>, <answer>) would end
# the observation early, for the model and for rewards that cut observations out.
_TAG_START = re.compile(r"<(?=[|｜/!A-Za-z_])")


class Measure(Protocol):
    """Counts text in the unit of the budget."""

    def count(self, text: str) -> int:
        """Units of `text`."""

    def head(self, text: str, units: int) -> str:
        """The longest beginning of `text` that has about `units` units, at most."""


class ByteMeasure:
    """UTF-8 bytes."""

    def count(self, text: str) -> int:
        return len(text.encode())

    def head(self, text: str, units: int) -> str:
        return text.encode()[: max(units, 0)].decode(errors="ignore")


class TokenMeasure:
    """Tokens of a Hugging Face tokenizer, without special tokens around the text."""

    def __init__(self, tokenizer: object) -> None:
        """`tokenizer`: a `transformers` tokenizer, fast (with offsets) or not."""
        self._tokenizer = tokenizer
        self._offsets = bool(getattr(tokenizer, "is_fast", False))

    def count(self, text: str) -> int:
        return len(self._encode(text)["input_ids"])

    def head(self, text: str, units: int) -> str:
        if units <= 0:
            return ""
        if self._offsets:
            offsets = self._encode(text, return_offsets_mapping=True)["offset_mapping"]
            # The start of the first dropped token: a character split over tokens goes with it.
            return text if len(offsets) <= units else text[: offsets[units][0]]
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.count(text[:middle]) <= units else (low, middle - 1)
        return text[:low]

    def _encode(self, text: str, **options: bool) -> dict[str, list]:
        return self._tokenizer(  # type: ignore[operator]
            text, add_special_tokens=False, verbose=False, **options
        )


def harmless(text: str) -> str:
    """`text` without tags and control tokens (their "<" becomes "("), as a tokenizer takes it."""
    return _TAG_START.sub("(", encodable(text))


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of a Search-R1 passage (`title`, newline, text), both `harmless`.

    The title is "" where the first line is too long for one.
    """
    contents = harmless(contents).strip()
    title, newline, text = contents.partition("\n")
    if not newline or len(title) > MAX_TITLE_CHARS:
        return "", contents
    return title.strip(), text.strip()


def render(results: Sequence[Sequence[str] | str], budget: int, measure: Measure) -> str:
    """The observation for one call: the passages found for each query, best first.

    results: for each query the `contents` of its passages, or a line that says why there are none.
    The text has at most `budget` units. Passages share the room evenly, and what a short one leaves
    goes to the longer ones; a text that is cut ends in " [cut]". Titles are never cut: where they
    alone do not fit, the last passages are left out, which a line says.
    """
    notes = [found + "\n" if isinstance(found, str) else NOTHING_FOUND for found in results]
    sections = [
        [] if isinstance(found, str) else [split_contents(contents) for contents in found]
        for found in results
    ]
    # Every query's best passage before any query's second one.
    order = sorted((rank, n) for n, found in enumerate(sections) for rank in range(len(found)))

    def frame(kept: int, texts: Sequence[str]) -> str:
        return _assemble(sections, notes, dict(zip(order[:kept], texts, strict=True)))

    low, high = 0, len(order)
    while low < high:  # how many passages fit with their titles alone
        kept = (low + high + 1) // 2
        fits = measure.count(frame(kept, [CUT] * kept)) <= budget
        low, high = (kept, high) if fits else (low, kept - 1)
    kept = low
    texts = [sections[n][rank][1] for rank, n in order[:kept]]
    room = budget - measure.count(frame(kept, [""] * kept))
    while room > 0 and kept:
        text = frame(kept, share(texts, room, measure))
        excess = measure.count(text) - budget
        if excess <= 0:
            return text
        # Tokens of a whole are not exactly the sum of those of its parts.
        room -= max(excess, 1 + room // 16)
    text = frame(kept, [CUT] * kept)
    return text if measure.count(text) <= budget else measure.head(text, budget)


def _assemble(
    sections: Sequence[Sequence[tuple[str, str]]],
    notes: Sequence[str],
    texts: Mapping[tuple[int, int], str],
) -> str:
    """The passages with a text in `texts`, whose keys are (rank, section), in order."""
    parts = []
    for number, found in enumerate(sections):
        if len(sections) > 1:
            parts.append(f"Results for query {number + 1}:\n")
        if not found:
            parts.append(notes[number])
        for rank, (title, _) in enumerate(found):
            if (rank, number) in texts:
                label = f"Doc {rank + 1}(Title: {title})" if title else f"Doc {rank + 1}"
                parts.append(f"{label} {texts[rank, number]}".rstrip() + "\n")
    left_out = sum(map(len, sections)) - len(texts)
    if left_out:
        parts.append(LEFT_OUT.format(count=left_out))
    return "".join(parts)


def share(texts: Sequence[str], room: int, measure: Measure) -> list[str]:
    """Cuts texts so that together they have at most about `room` units, max-min fairly."""
    most = _CHARS_PER_UNIT * max(room, 0)
    sizes = [
        measure.count(text) if len(text) <= most else max(room, measure.count(text[:most])) + 1
        for text in texts
    ]
    shares = [0] * len(texts)
    left = max(room, 0)
    for position, index in enumerate(sorted(range(len(texts)), key=sizes.__getitem__)):
        shares[index] = min(sizes[index], left // (len(texts) - position))
        left -= shares[index]
    mark = measure.count(CUT)
    return [
        text if size <= given else _head_of_words(text[:most], given - mark, measure) + CUT
        for text, size, given in zip(texts, sizes, shares, strict=True)
    ]


def _head_of_words(text: str, units: int, measure: Measure) -> str:
    """The beginning of `text`, ended after a whole word where one ends nearby."""
    head = measure.head(text, units)
    if len(head) < len(text) and not text[len(head)].isspace():
        last_space = max(head.rfind(" "), head.rfind("\n"))
        if last_space >= len(head) - _WORD_CHARS and last_space > 0:
            head = head[:last_space]
    return head.rstrip()
