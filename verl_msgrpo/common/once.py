"""Says a thing once in a process, however often its cause comes back."""

import logging

_said: set[tuple[str, str]] = set()


def say_once(logger: logging.Logger, level: int, message: str, *args: object) -> None:
    """Logs `message % args`, unless this logger was given the same `message` before."""
    if (logger.name, message) not in _said:
        _said.add((logger.name, message))
        logger.log(level, message, *args)


def forget() -> None:
    """Starts anew, for tests."""
    _said.clear()
