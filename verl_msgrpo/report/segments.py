"""A decoded response, cut into what the model wrote and what it was shown.

A dump holds text only, so the tags of an observation tell: `<tool_response>`, `<information>`. What
a model itself writes between such tags is taken for an observation.
"""

import dataclasses
import re
from collections.abc import Sequence

from verl_msgrpo.rewards.model_text import OBSERVATION_TAGS

MODEL, OBSERVATION = "model", "observation"

_TAGS = "|".join(OBSERVATION_TAGS)
# An observation that is never closed takes the rest, as it does for the rewards.
_OBSERVATION = re.compile(rf"<({_TAGS})>.*?(?:</\1>|\Z)", re.DOTALL)
# Headers of turns, with their special tokens or what is left of them; the template's, not the
# model's. Before an observation, and after it.
_OPENING = re.compile(r"(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?\b(?:tool|user)\n\Z")
_CLOSING = re.compile(r"\s*(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?assistant\n")
_MAX_HEADER_CHARS = 60


@dataclasses.dataclass(frozen=True)
class Segment:
    """Text of one author: MODEL or OBSERVATION."""

    author: str
    text: str


def segments(response: str) -> list[Segment]:
    """The parts of a response in order; joined, they are the response."""
    cuts = [0]
    for found in _OBSERVATION.finditer(response):
        start, end = found.span()
        tail = max(cuts[-1], start - _MAX_HEADER_CHARS)
        if header := _OPENING.search(response[tail:start]):
            start = tail + header.start()
        if header := _CLOSING.match(response[end : end + _MAX_HEADER_CHARS]):
            end += header.end()
        cuts += [start, end]
    cuts.append(len(response))
    authors = [OBSERVATION if number % 2 else MODEL for number in range(len(cuts) - 1)]
    parts = [
        Segment(author, response[start:end])
        for author, start, end in zip(authors, cuts, cuts[1:], strict=False)
    ]
    return _merged(parts)


def _merged(parts: Sequence[Segment]) -> list[Segment]:
    """Neighbours of the same author as one, as are answers to parallel calls; blanks join them."""
    merged: list[Segment] = []
    for part in parts:
        if merged and (merged[-1].author == part.author or not part.text.strip()):
            merged[-1] = Segment(merged[-1].author, merged[-1].text + part.text)
        elif merged and not merged[-1].text.strip():
            merged[-1] = Segment(part.author, merged[-1].text + part.text)
        else:
            merged.append(part)
    return merged
