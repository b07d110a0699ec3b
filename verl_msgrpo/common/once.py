"""Says a thing once in a process, however often its cause comes back."""

import logging

_seen: set[tuple[str, ...]] = set()


def first_time(*what: str) -> bool:
    """Whether this process asks for the first time."""
    if what in _seen:
        return False
    _seen.add(what)
    return True


def say_once(logger: logging.Logger, level: int, message: str, *args: object) -> None:
    """Logs `message % args`, unless this logger was given the same `message` before."""
    if first_time(logger.name, message):
        logger.log(level, message, *args)


def forget() -> None:
    """Starts anew, for tests."""
    _seen.clear()
