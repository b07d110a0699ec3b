"""Numbers from outside: settings that a user typed, values that a file holds.

A setting that is not allowed is told in one wording everywhere:
`NAME: allowed is WHAT, got 'VALUE'`.
"""

import argparse
import math
from collections.abc import Callable


def finite(value: object) -> float | None:
    """A value of a file as float64; None for anything but a finite number.

    Booleans are numbers, as in JSON lines that verl writes; text never is.
    """
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def not_allowed(name: str, allowed: str, got: object) -> ValueError:
    """The error for a setting that is not allowed, in one line of bounded length."""
    try:
        shown = str(got)[:80]
    except (ValueError, RecursionError):  # too many digits, lists too deep
        shown = type(got).__name__
    return ValueError(f"{name}: allowed is {allowed}, got {shown!r}")


def integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """A setting that is a whole number; 4.0 is 4, booleans and text are not numbers.

    Raises:
        ValueError: it is none, or outside low .. high.
    """
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    # bool is an int to Python, yet never meant as one here.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        if not (isinstance(value, float) and value.is_integer()):
            raise not_allowed(name, allowed, value)
        value = int(value)
    try:
        number = value.__index__()
    except TypeError:  # arrays have the method, whatever is in them
        raise not_allowed(name, allowed, value) from None
    if number < low or (high is not None and number > high):
        raise not_allowed(name, allowed, value)
    return number


def real(name: str, value: object, low: float, high: float = math.inf) -> float:
    """A setting that is a finite number; booleans and text are not numbers.

    Raises:
        ValueError: it is none, or outside low .. high.
    """
    if high == math.inf:
        allowed = "a finite number" if low == -math.inf else f"a finite number >= {low:g}"
    else:
        allowed = f"a number from {low:g} to {high:g}"
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise not_allowed(name, allowed, value)
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        raise not_allowed(name, allowed, value) from None
    if not (math.isfinite(number) and low <= number <= high):
        raise not_allowed(name, allowed, value)
    return number


def integer_argument(low: int, high: int | None = None) -> Callable[[str], int]:
    """The same as a type for argparse, which names the option itself."""

    def read(text: str) -> int:
        allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
        try:
            return integer("", int(text), low, high)
        except ValueError:
            raise argparse.ArgumentTypeError(f"allowed is {allowed}, got {text[:80]!r}") from None

    return read


def real_argument(low: float, high: float = math.inf) -> Callable[[str], float]:
    """As `integer_argument`, for finite numbers."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        try:
            return real("", number, low, high)
        except ValueError as error:
            allowed = str(error).removeprefix(": ").partition(", got ")[0]
            raise argparse.ArgumentTypeError(f"{allowed}, got {text[:80]!r}") from None

    return read
