"""What of a response is the model's own final word.

verl hands a reward the whole decoded response, tool observations included. Rewards here look at
the final turn alone: the text after the last observation. Pairs of tags could not be trusted to
delimit an observation, because a retrieved passage may hold a closing tag of its own; whatever
stands before the last closing tag is therefore never looked at.
"""

from collections.abc import Mapping, Sequence

OBSERVATION_TAGS = ("tool_response", "information")
# A final turn is looked at from its end; this is about 50,000 tokens of English.
MAX_CHARS = 200_000

# Headers and ends of turns, for responses decoded with their special tokens and for transcripts
# that still hold the prompt.
_OWN_HEADERS = ("<|im_start|>assistant", "<|start_header_id|>assistant<|end_header_id|>")
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|im_start|>", "<|start_header_id|>")


def final_turn(solution: object, observation_tags: Sequence[str] = OBSERVATION_TAGS) -> str:
    """The model's own text after the last observation, without what others wrote after it.

    An observation that is opened and never closed takes the rest of the text with it. Anything but
    a string gives "".
    """
    if not isinstance(solution, str):
        return ""
    ends = (*_OWN_HEADERS, *(f"</{tag}>" for tag in observation_tags))
    begin = max((at + len(end) for end in ends if (at := solution.rfind(end)) >= 0), default=0)
    starts = (*_TURN_ENDS, *(f"<{tag}>" for tag in observation_tags))
    found = (solution.find(start, begin) for start in starts)
    finish = min((at for at in found if at >= 0), default=len(solution))
    text = solution[max(begin, finish - MAX_CHARS) : finish]
    # What is left of a ChatML header once the special tokens are gone.
    return text.lstrip().removeprefix("assistant\n") if begin else text


def is_cut_off(text: str, extra_info: object) -> bool:
    """Whether the response ended early: the row says so (`truncated`), or a tag is left open."""
    if isinstance(extra_info, Mapping) and extra_info.get("truncated"):
        return True
    return any(text.rfind(f"<{tag}>") > text.rfind(f"</{tag}>") for tag in ("think", "answer"))
