"""What a check finds."""

from dataclasses import dataclass

ERROR = "error"
WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and the override (or the command) that mends it."""

    check: str
    """Family of the check, for example "parallelism"."""
    message: str
    fix: str
    severity: str = ERROR


def one_line(error: BaseException | str, limit: int = 400) -> str:
    """The text of an error without line breaks, cut to `limit` characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 4] + " ..."
