"""LiveCodeBench's private tests: JSON, or base64 of zlib of a pickle of JSON, read without pickle.

Unpickling can call anything and fill the memory. A pickled text consists of its characters and of
framing, so the pickle is read as a list of opcodes, and any other opcode is refused.
"""

import base64
import binascii
import pickletools
import zlib

from verl_msgrpo.tasks.fields import FieldError

MAX_BYTES = 512 << 20  # of one problem's tests, unpacked
_TEXT = frozenset(("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"))
_FRAMING = frozenset(("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"))


def decode(packed: str, field: str, max_bytes: int = MAX_BYTES) -> str:
    """The JSON text in a field that holds it plain or packed.

    Raises:
        FieldError: it is neither, or larger than `max_bytes`.
    """
    if packed.lstrip()[:1] in ("[", "{"):
        return packed
    unpacker = zlib.decompressobj()
    try:
        pickled = unpacker.decompress(base64.b64decode(packed, validate=True), max_bytes + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise FieldError(f"{field} is neither JSON nor base64 of zlib: {error}") from None
    if len(pickled) > max_bytes:
        raise FieldError(f"{field} holds more than {max_bytes} bytes")
    if not unpacker.eof:
        raise FieldError(f"{field} is cut short")
    return _pickled_text(pickled, field)


def _pickled_text(pickled: bytes, field: str) -> str:
    found: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name in _TEXT and isinstance(argument, str):
                found.append(argument)
            elif opcode.name not in _FRAMING:
                raise FieldError(f"{field} is a pickle of something else than a text")
    except FieldError:
        raise
    except (ValueError, EOFError) as error:  # of bytes that are no pickle
        raise FieldError(f"{field} is no pickle: {error}") from None
    if len(found) != 1:
        raise FieldError(f"{field} is a pickle of {len(found)} texts; it must be one")
    return found[0]
