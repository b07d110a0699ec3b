"""Text from files as a page can hold it: nothing invisible in it, and not endless."""

import re

# Control characters, lone surrogates, and marks that turn the direction of what follows.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def clean(text: str, limit: int) -> str:
    """The text with U+FFFD for what is unsafe, without its middle beyond `limit` characters."""
    if len(text) > limit:
        half = limit // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"
    return _UNSAFE.sub("\ufffd", text)
