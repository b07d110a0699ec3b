"""Reads the fields of a raw example, or says which field is wrong."""

from collections.abc import Mapping
from datetime import date

Example = Mapping[str, object]


class FieldError(ValueError):
    """A field that no row can be made of; the message begins with its name."""


class NotOfTask(Exception):  # noqa: N818 - no error: the row is left out and counted
    """A row of another task, in a data set that mixes several."""


def text(example: Example, name: str) -> str:
    """A text that is not empty, without the blanks around it; raises FieldError."""
    return as_text(example.get(name), name)


def as_text(value: object, name: str) -> str:
    """`value` as a text that is not empty; numbers are written out, raises FieldError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
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
        if isinstance(value, str | int | float) and str(value).strip():
            return str(value).strip().encode("utf-8", "replace").decode()
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


def shown(value: object) -> str:
    """A value for a message, cut short."""
    words = repr(value)
    return words if len(words) <= 80 else f"{words[:77]}..."
