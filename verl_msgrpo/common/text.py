"""Text from outside, made fit for files, tokenizers and tables."""

import hashlib
import json


def encodable(text: str) -> str:
    """Replaces lone surrogates, which JSON can spell and UTF-8 cannot, by "?"."""
    if text.isascii():  # known of every text, at no cost
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def digest(value: object) -> bytes:
    """16 bytes that stand for a text or JSON value; the same in every process.

    1 and "1" differ, dictionaries with their keys in another order do not.
    """
    text = "s" + value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def first_line(error: BaseException) -> str:
    """What an error says, in one line without a full stop; its type where it says nothing."""
    return str(error).strip().partition("\n")[0].rstrip(" .") or type(error).__name__
