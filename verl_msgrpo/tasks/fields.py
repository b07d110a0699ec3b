"""Reads the fields of a raw example, or says which field is wrong."""

import math
from collections.abc import Mapping
from datetime import date

from verl_msgrpo.common.text import encodable

Example = Mapping[str, object]


class FieldError(ValueError):
    """A field that cannot be used; the message begins with its name."""


class NotOfTask(Exception):  # noqa: N818 - not an error: the row is left out and counted
    """A row of another task, in a data set that mixes several."""


def text(example: Example, name: str) -> str:
    """A text that is not empty, without the blanks around it; raises FieldError."""
    return as_text(example.get(name), name)


def as_text(value: object, name: str) -> str:
    """`value` as a text that is not empty; finite numbers are written out. Raises FieldError."""
    if _is_number(value):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise FieldError(f"{name} is {shown(value)}; it must be a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldError(f"{name} holds half a surrogate pair, which no file can keep") from None
    return value.strip()


def note(example: Example, *names: str) -> str:
    """The first of these fields that says something, as a text; "" if none does."""
    for name in names:
        value = example.get(name)
        if isinstance(value, date):  # or a datetime
            return value.isoformat()
        if (isinstance(value, str | bool) or _is_number(value)) and str(value).strip():
            return encodable(str(value).strip())
    return ""


def texts(value: object, name: str) -> list[str]:
    """A list of texts, at least one; raises FieldError."""
    if not isinstance(value, list) or not value:
        raise FieldError(f"{name} is {shown(value)}; it must be a list of texts")
    return [as_text(item, f"{name}[{index}]") for index, item in enumerate(value)]


def struct(example: Example, name: str) -> Example:
    """A struct; raises FieldError."""
    value = example.get(name)
    if not isinstance(value, Mapping):
        raise FieldError(f"{name} is {shown(value)}; it must be a struct")
    return value


def _is_number(value: object) -> bool:
    """Whether it is a number that says something: not NaN, which pandas has for nothing."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value for a message, cut short."""
    words = repr(value)
    return words if len(words) <= 80 else f"{words[:77]}..."
