import io
import json

import pytest

from verl_msgrpo.common.json_lines import lines_of, objects_in, objects_of
from verl_msgrpo.errors import UserError


def read(data: bytes, limit: int = 100):
    return [tuple(line) for line in lines_of(io.BytesIO(data), limit)]


def test_lines_are_numbered_and_blank_ones_skipped():
    assert read(b'\xef\xbb\xbf{"a": 1}\n\n \r\n2\r\n"x"') == [
        (1, {"a": 1}, None),
        (4, 2, None),
        (5, "x", None),
    ]


@pytest.mark.parametrize("bad", [b'{"a": ', b"\xff", b"[" * 99, b"nul"])
def test_a_broken_line_is_one_problem(bad):
    (first, second) = read(bad + b"\n3\n")
    assert first[:2] == (1, None)
    assert first[2].startswith("broken JSON (")
    assert second == (2, 3, None)


@pytest.mark.parametrize("length", [98, 99, 100, 101, 200, 201, 250, 1000])
def test_a_line_that_is_too_long_is_passed_over_whole(length):
    row = json.dumps("x" * (length - 2)).encode()
    (first, second) = read(row + b"\n3\n")
    assert first == (
        (1, "x" * (length - 2), None) if length <= 100 else (1, None, "longer than 100 bytes")
    )
    assert second == (2, 3, None)


def test_objects(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n[2]\n')
    rows = objects_of(file)
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(UserError, match=r"rows\.jsonl, line 2: not a JSON object"):
        next(rows)
    with pytest.raises(
        UserError, match=r"a folder; name one file of it, for example .*rows\.jsonl"
    ):
        next(objects_of(tmp_path))
    with pytest.raises(UserError, match="No such file"):
        next(objects_of(tmp_path / "none"))


def test_objects_of_a_stream_are_called_what_the_caller_calls_it():
    rows = objects_in(io.BytesIO(b'{"a": 1}\n\n"x"\n'), "hub/rows.jsonl.gz")
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(UserError, match=r"^hub/rows\.jsonl\.gz, line 3: not a JSON object$"):
        next(rows)
    with pytest.raises(UserError, match=r"^x, line 1: longer than 5 bytes; was the file cut"):
        list(objects_in(io.BytesIO(b'{"a": 1}\n'), "x", 5))
