import logging

import pytest

from verl_msgrpo.common.once import forget, say_once
from verl_msgrpo.common.row_keys import RowKey, row_key
from verl_msgrpo.common.text import digest, encodable, first_line


def test_encodable():
    assert encodable("a\ud800b é") == "a?b é"
    assert encodable("plain") == "plain"
    assert encodable("") == ""


def test_digests_tell_surrogates_and_types_apart():
    values = ["a", "a\ud800", "a\udfff", 1, "1\n", None, ["a"]]
    assert len({digest(value) for value in values}) == len(values)
    assert len(digest("x")) == 16
    assert digest("a") == digest("a")


@pytest.mark.parametrize(
    ("text", "line"),
    [("no such host.\nat f", "no such host"), ("\n a.b \nc", "a.b"), ("", "OSError")],
)
def test_first_line_of_an_error(text, line):
    assert first_line(OSError(text)) == line


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("u_0_3", RowKey("u", 0, 3)),
        ("my_data_12_1_0", RowKey("my_data_12", 1, 0)),
        ("_0_0", RowKey("", 0, 0)),
    ],
)
def test_row_key(key, expected):
    assert row_key(key) == expected


@pytest.mark.parametrize(
    "key", ["u", "u_0", "u_0_x", "u_-1_0", "u_0_", "u_٣_0", "u_0_1234567890", "0_0", None, 7]
)
def test_other_keys(key):
    assert row_key(key) is None


def test_say_once(caplog):
    forget()
    logger = logging.getLogger("verl_msgrpo.test")
    for number in range(3):
        say_once(logger, logging.WARNING, "number %d", number)
    assert [record.getMessage() for record in caplog.records] == ["number 0"]
    forget()
    say_once(logger, logging.WARNING, "number %d", 3)
    assert caplog.records[-1].getMessage() == "number 3"
