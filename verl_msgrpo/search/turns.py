"""Where a model's turn ends: after its calls, in text, in tokens and in the chat template."""

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]


def end_of_calls(text: str, start: str, end: str, limit: int) -> int | None:
    """The position after the first call in `text`, or after the last of up to `limit` in a row.

    Calls are in a row when only white space is between them. None where no call ends.
    """
    position = text.find(end)
    if position < 0:
        return None
    position += len(end)
    for _ in range(limit - 1):
        following = len(text) - len(text[position:].lstrip())
        close = text.find(end, following)
        if not text.startswith(start, following) or close < 0:
            break
        position = close + len(end)
    return position


def tokens_until(position: int, ids: Sequence[int], decode: Decode) -> int:
    """How many of `ids` it takes until their text reaches `position` (a character index)."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(decode(ids[:middle])) >= position:
            high = middle
        else:
            low = middle + 1
    return low


def template_tail(render: Callable[[str], Sequence[int]]) -> list[int]:
    """The tokens that a chat template puts after an assistant's text: `<|im_end|>`, newline.

    render: the ids of a conversation that ends with an assistant's message of that text.
    """
    first, second = list(render("0")), list(render("1"))
    length = 0
    while length < min(len(first), len(second)) and first[-1 - length] == second[-1 - length]:
        length += 1
    # Two texts that render alike would make everything the tail.
    return first[len(first) - length :] if length < len(first) else []


def missing_tail(ids: Sequence[int], tail: Sequence[int]) -> list[int]:
    """What of `tail` does not yet stand at the end of `ids`."""
    for present in range(len(tail), 0, -1):
        if list(ids[-present:]) == list(tail[:present]):
            return list(tail[present:])
    return list(tail)
