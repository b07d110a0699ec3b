"""LiveCodeBench's pickled tests are read, and nothing in them is executed."""

import base64
import json
import os
import pickle
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_msgrpo.tasks.fields import FieldError
from verl_msgrpo.tasks.private_tests import decode

TESTS = json.dumps([{"input": "1\n", "output": "Zürich 山\n", "testtype": "stdin"}])


def pack(data):
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", [TESTS, "", "x" * 200_000, "\n\\é\u2028'" * 50])
def test_texts_of_every_protocol(protocol, text):
    assert decode(pack(pickle.dumps(text, protocol=protocol)), "f") == text


def test_plain_json():
    assert decode(TESTS, "f") == TESTS


class Payload:
    """Creates a file where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: ("[]", x), lambda x: {"a": x}])
def test_code_is_refused_and_not_run(tmp_path, protocol, wrap):
    target = tmp_path / "made"
    data = pickle.dumps(wrap(Payload(target)), protocol=protocol)
    with pytest.raises(FieldError, match="f is a pickle of something else than a text"):
        decode(pack(data), "f")
    assert not target.exists()
    pickle.loads(data)  # the payload is a real one
    assert target.exists()


@pytest.mark.parametrize("value", [7, b"[]", ["[]"], None, str, len, ("a", "b"), {"a": 1}])
def test_other_values_are_refused(value):
    with pytest.raises(FieldError, match="something else than a text"):
        decode(pack(pickle.dumps(value)), "f")


def test_a_text_behind_a_text_is_refused():
    data = pickle.dumps("[1]")[:-1] + pickle.dumps("[2]")[2:]
    with pytest.raises(FieldError, match="2 texts"):
        decode(pack(data), "f")


def test_a_memo_that_would_fill_the_memory_is_not_built():
    data = b"\x80\x04X\x02\x00\x00\x00[]r\xff\xff\xff\x7f."  # LONG_BINPUT 2**31 - 1
    assert decode(pack(data), "f") == "[]"


def test_unpacked_size_is_bounded():
    bomb = pack(pickle.dumps("x" * 5_000_000))
    assert len(bomb) < 10_000
    with pytest.raises(FieldError, match="f holds more than 1000000 bytes"):
        decode(bomb, "f", max_bytes=1_000_000)


@pytest.mark.parametrize(
    "packed",
    [
        "",
        "not base64!",
        "////",
        base64.b64encode(b"not zlib").decode(),
        pack(pickle.dumps(TESTS))[:-8],
        pack(b""),
        pack(b"\x80"),
        pack(b"\x80\x04."),
        pack(b"not a pickle"),
        pack(pickle.dumps(TESTS)[:-1]),
        pack(b"X\xff\xff\xff\xff."),
    ],
)
def test_damaged_fields(packed):
    with pytest.raises(FieldError, match=r"^f "):
        decode(packed, "f")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_pickles_give_a_text_or_an_error(data):
    try:
        text = decode(pack(data), "f")
    except FieldError:
        return
    assert isinstance(text, str)


@settings(deadline=None)
@given(st.text())
def test_every_text_comes_back(text):
    assert decode(pack(pickle.dumps(text, protocol=4)), "f") == text
