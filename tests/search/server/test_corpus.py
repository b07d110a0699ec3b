"""Reading corpora: Search-R1's rows, HotpotQA's contexts, damaged files."""

import gzip
import json

import pytest

from tests.search.server.conftest import write_rows
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server import corpus
from verl_msgrpo.search.server.corpus import Passage, read_passages

HUB_ROWS = [
    {
        "id": "q1",
        "question": "?",
        "answer": "yes",
        "context": {
            "title": ["Dune", "Mars"],
            "sentences": [["Dune is a novel.", " It is long."], ["Mars is red."]],
        },
    },
    {
        "id": "q2",
        "question": "?",
        "answer": "no",
        # Mars again, word for word, and another paragraph of the same title.
        "context": {"title": ["Mars", "Mars"], "sentences": [["Mars is red."], ["Mars is cold."]]},
    },
]
RELEASE_ROWS = [
    {
        "_id": "q1",
        "context": [["Dune", ["Dune is a novel.", " It is long."]], ["Mars", ["Mars is red."]]],
    },
    {"_id": "q2", "context": [["Mars", ["Mars is red."]], ["Mars", ["Mars is cold."]]]},
]
HOTPOTQA_PASSAGES = [
    Passage("0", "Dune\nDune is a novel. It is long."),
    Passage("1", "Mars\nMars is red."),
    Passage("2", "Mars\nMars is cold."),
]


def test_search_r1_rows_keep_ids_and_contents(tmp_path):
    rows = [{"id": "a", "contents": '"T"\ntext'}, {"id": 7, "contents": "", "extra": [1]}]
    path = write_rows(tmp_path / "c.jsonl", rows)
    assert list(read_passages([path])) == [Passage("a", '"T"\ntext'), Passage(7, "")]


def test_hub_rows_are_deduplicated_by_title_and_text(tmp_path):
    path = write_rows(tmp_path / "c.jsonl", HUB_ROWS)
    assert list(read_passages([path])) == HOTPOTQA_PASSAGES


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("chunk", [1, 3, 64, 1 << 20])
def test_a_json_array_is_read_in_chunks_of_any_size(tmp_path, monkeypatch, indent, chunk):
    monkeypatch.setattr(corpus, "_CHUNK_BYTES", chunk)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(RELEASE_ROWS, indent=indent))
    assert list(read_passages([path])) == HOTPOTQA_PASSAGES


def test_gzip_and_several_files(tmp_path):
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(HUB_ROWS[0]).encode()))
    plain = write_rows(tmp_path / "b.jsonl", HUB_ROWS[1:])
    read = []
    assert list(read_passages([packed, plain], read.append)) == HOTPOTQA_PASSAGES
    assert sum(read) == packed.stat().st_size + plain.stat().st_size


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "c.parquet"
    pq.write_table(pa.Table.from_pylist(HUB_ROWS), path)
    read = []
    assert list(read_passages([path], read.append)) == HOTPOTQA_PASSAGES
    assert sum(read) == path.stat().st_size
    other = tmp_path / "other.parquet"
    pq.write_table(pa.Table.from_pylist([{"id": 1}]), other)
    with pytest.raises(UserError, match='has neither a "contents" nor'):
        list(read_passages([other]))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UserError, match=r"c\.parquet"):
        list(read_passages([path]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"id": "a", "contents": "x"}\n{"id": "b", "conte', "line 2: broken JSON"),
        ('{"id": "a", "text": "x"}\n', 'row 1: neither "contents"'),
        ('{"id": null, "contents": "x"}\n', 'row 1: "id"'),
        ('{"id": "a", "contents": ["x"]}\n', 'row 1: "contents"'),
        ("[1, 2]", "row 1: not a JSON object"),
        ('[{"id": "a", "contents": "x"}', "damaged or cut short"),
        ("", "holds no rows"),
        (" \n \n", "holds no rows"),
        ('{"context": {"title": ["a"], "sentences": []}}\n', "1 titles but 0 paragraphs"),
        ('{"context": {"title": ["a"], "sentences": [[1]]}}\n', "row 1: a paragraph"),
        ('{"context": "x"}\n', "neither a struct"),
        ("[" * 100_000, "c.jsonl"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, reason):
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=reason) as caught:
        list(read_passages([path]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["c.json", "c.jsonl", "c.json.gz"])
@pytest.mark.parametrize(
    "text", [json.dumps(RELEASE_ROWS), " " + "\n".join(map(json.dumps, RELEASE_ROWS))]
)
def test_a_byte_order_mark_is_skipped(tmp_path, name, text):
    path = tmp_path / name
    content = text.encode("utf-8-sig")
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert list(read_passages([path])) == HOTPOTQA_PASSAGES


@pytest.mark.parametrize("content", [b"\xef", b"\xef\xbb", b"\xef\xbb[]", b"\xef\xbb\xbf"])
def test_half_a_byte_order_mark_or_nothing_after_it_is_refused(tmp_path, content):
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"c\.json"):
        list(read_passages([path]))


def test_a_gzip_file_with_damaged_bytes_is_refused(tmp_path):
    path = tmp_path / "c.jsonl.gz"
    good = gzip.compress(
        "".join(json.dumps({"id": i, "contents": str(i)}) + "\n" for i in range(999)).encode()
    )
    for place in range(10, len(good), 37):
        path.write_bytes(
            good[:place] + bytes(b ^ 0xFF for b in good[place : place + 4]) + good[place + 4 :]
        )
        with pytest.raises(UserError, match=r"c\.jsonl\.gz"):
            list(read_passages([path]))


def test_a_cut_gzip_file_is_refused(tmp_path):
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(HUB_ROWS[0]).encode())[:-9])
    with pytest.raises(UserError, match="cannot be read"):
        list(read_passages([path]))


def test_a_row_that_is_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "_MAX_ROW_BYTES", 60)
    rows = [{"id": "a", "contents": "x"}, {"id": "b", "contents": "x" * 60}]
    path = write_rows(tmp_path / "c.jsonl", rows)
    with pytest.raises(UserError, match=r"c\.jsonl, line 2: longer than 60 bytes"):
        list(read_passages([path]))


@pytest.mark.parametrize("blanks", [3, 20, 64])
def test_blanks_before_the_rows_are_skipped_however_many(tmp_path, monkeypatch, blanks):
    monkeypatch.setattr(corpus, "_BUFFER_BYTES", 8)
    path = tmp_path / "c.json"
    for text in (json.dumps(RELEASE_ROWS), "\n".join(map(json.dumps, RELEASE_ROWS))):
        path.write_text("\n" * blanks + text)
        assert list(read_passages([path])) == HOTPOTQA_PASSAGES


def test_paragraphs_that_are_equal_on_disk_are_one(tmp_path):
    contexts = [[["Dune", [text]]] for text in ("a ?", "a \ud800", "a b")]
    path = write_rows(tmp_path / "c.jsonl", [{"context": context} for context in contexts])
    assert [passage.contents for passage in read_passages([path])] == ["Dune\na ?", "Dune\na b"]
