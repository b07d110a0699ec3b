"""verl's key of a row: `{uid}_{session}_{index}`.

A prompt (uid) has several sessions, one a rollout; an agent loop may cut a session into several
rows, of which the one with the highest index is the last.
"""

from typing import NamedTuple

_MOST_DIGITS = 9


class RowKey(NamedTuple):
    """The parts of a key. A uid may hold underscores itself; `part` is verl's `index`."""

    uid: str
    session: int
    part: int


def row_key(key: object) -> RowKey | None:
    """Takes a key apart; None for what has another form."""
    if not isinstance(key, str):
        return None
    uid, *numbers = key.rsplit("_", 2)
    if len(numbers) != 2 or not all(
        number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS for number in numbers
    ):
        return None
    return RowKey(uid, int(numbers[0]), int(numbers[1]))
