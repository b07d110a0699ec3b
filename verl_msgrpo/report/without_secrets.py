"""Settings without keys, tokens and passwords, which files that are passed on must not hold."""

import re
from collections.abc import Mapping

HIDDEN = "(hidden)"

_SECRET = re.compile(
    r"(api|access|private)[-_]?key|secret|passw|passphrase|credential|authorization|cookie"
    r"|(access|auth|hf|bearer)[-_]?token|(^|[-_.])token$",
    re.I,
)
_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # user:password@
_QUERY = re.compile(r"(?<=[?&])([^=&\s]{1,100})=([^&#\s]+)")


def without_secrets(value: object, is_secret: bool = False) -> object:
    """The same nested settings with HIDDEN for what a key, or a URL, says is secret.

    Args:
        value: mappings, lists and plain values, nested.
        is_secret: whether a key above says so. Numbers too are hidden then, but neither booleans
            nor None.

    Raises:
        RecursionError: nested too deeply.
    """
    if isinstance(value, Mapping):
        return {
            key: without_secrets(item, is_secret or bool(_SECRET.search(str(key))))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(item, is_secret) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if is_secret:
        return HIDDEN
    return _without_secrets_of_urls(value) if isinstance(value, str) else value


def _without_secrets_of_urls(text: str) -> str:
    def hidden(found: re.Match[str]) -> str:
        return f"{found[1]}={HIDDEN}" if _SECRET.search(found[1]) else found[0]

    return _QUERY.sub(hidden, _IN_URL.sub(HIDDEN, text))
