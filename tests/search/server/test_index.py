"""Building and loading indexes: atomic, checked, equal to bm25s"""

import json
import os
import signal
import subprocess
import sys

import bm25s
import numpy as np
import pytest
import Stemmer

from tests.search.server.conftest import (
    build_index,
    make_queries,
    write_rows,
)
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server import index as index_module
from verl_msgrpo.search.server.backends.bm25 import Tokenizer
from verl_msgrpo.search.server.index import MANIFEST_FILE, BuildOptions, open_index


def bm25s_alone(rows, queries, k, backend="numpy"):
    """Ids and scores from bm25s, fed with texts and its own tokeniser."""
    stemmer = Stemmer.Stemmer("english")
    options = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}
    retriever = bm25s.BM25(backend=backend, auto_compile=False)
    retriever.index(
        bm25s.tokenize([row["contents"] for row in rows], **options), show_progress=False
    )
    found, scores = retriever.retrieve(
        bm25s.tokenize(queries, return_ids=False, **options), k=k, show_progress=False
    )
    return [
        [(rows[i]["id"], s) for i, s in zip(f, r, strict=True)]
        for f, r in zip(found.tolist(), scores.tolist(), strict=True)
    ]


def found(backend, queries, k):
    return [
        [(json.loads(hit.document)["id"], hit.score) for hit in hits]
        for hits in backend.search(queries, k)
    ]


@pytest.mark.parametrize("k", [1, 3, 50])
def test_results_equal_bm25s_used_directly(index, rows, k):
    queries = make_queries(rows, 100)
    backend = open_index(index)
    try:
        assert found(backend, queries, k) == bm25s_alone(rows, queries, k)
    finally:
        backend.close()


def test_numba_scores_equal_numpy_scores(index, rows):
    pytest.importorskip("numba")
    queries = make_queries(rows, 30)
    backend = open_index(index, scorer="numba")
    try:
        ours = found(backend, queries, 3)
    finally:
        backend.close()
    direct = bm25s_alone(rows, queries, 3)
    assert [[s for _, s in hits] for hits in ours] == [[s for _, s in hits] for hits in direct]


@pytest.mark.parametrize("language", ["english", "none"])
def test_tokens_equal_those_of_bm25s(language):
    texts = ["The QUICK foxes' running; 3 dogs ran!", "naïve Café 東京タワー it's", " ", "\x00 a b"]
    english = language == "english"
    options = (
        {"stopwords": "en", "stemmer": Stemmer.Stemmer("english")} if english else {"stopwords": []}
    )
    expected = bm25s.tokenize(texts, return_ids=False, show_progress=False, **options)
    assert [Tokenizer(language)(text) for text in texts] == expected


def test_queries_without_a_known_word_find_nothing(index):
    backend = open_index(index)
    try:
        hostile = [
            "",
            " \n\t",
            "xyzzyxyzzy",
            "the of and",
            "\x00",
            "🦀" * 50,
            "' OR 1=1 --",
            "\u202e",
        ]
        assert backend.search(hostile, 3) == [[]] * len(hostile)
    finally:
        backend.close()


def test_top_k_above_the_corpus_gives_what_there_is(tmp_path):
    two = [{"id": "a", "contents": "A\nred apple"}, {"id": "b", "contents": "B\nred brick"}]
    backend = open_index(build_index(tmp_path, two))
    try:
        assert {json.loads(h.document)["id"] for h in backend.search(["red"], 3)[0]} == {"a", "b"}
    finally:
        backend.close()


def test_a_corpus_without_words_is_refused(tmp_path):
    with pytest.raises(UserError, match="no word"):
        build_index(tmp_path, [{"id": "a", "contents": "a\n?"}])
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_passages_without_words_and_with_any_unicode_are_kept(tmp_path):
    odd = [
        {"id": "a", "contents": ""},
        {"id": "b", "contents": "B\nline one\nline two\u2028three \ud800 apple"},
        {"id": "c", "contents": "C\n東京 apple"},
    ]
    backend = open_index(build_index(tmp_path, odd))
    try:
        hits = [json.loads(hit.document) for hit in backend.search(["apple"], 2)[0]]
    finally:
        backend.close()
    contents = {hit["id"]: hit["contents"] for hit in hits}
    assert contents == {"b": "B\nline one\nline two\u2028three ? apple", "c": "C\n東京 apple"}


def test_a_build_that_fails_late_leaves_nothing(tmp_path, monkeypatch, rows):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(index_module, "_write_manifest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path, rows)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_a_killed_build_leaves_nothing_that_loads(tmp_path, rows):
    corpus = write_rows(tmp_path / "corpus.jsonl", rows)
    output = tmp_path / "index"
    code = (
        "import sys, threading\n"
        "from verl_msgrpo.cli import main\n"
        "from verl_msgrpo.search.server import index\n"
        "def never(*_):\n"
        "    print('all but the manifest', flush=True)\n"
        "    threading.Event().wait()\n"
        "index._write_manifest = never\n"
        "main(sys.argv[1:])\n"
    )
    words = [sys.executable, "-c", code, "index", "--corpus", corpus, "--output", output]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "all but the manifest\n"
        finally:
            process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    (left,) = tmp_path.glob(".index.building-*")
    assert not output.exists()
    with pytest.raises(UserError, match="unfinished"):
        open_index(left)


def test_an_existing_output_is_never_touched(tmp_path, rows):
    (tmp_path / "index").mkdir()
    with pytest.raises(UserError, match="exists already"):
        build_index(tmp_path, rows)


@pytest.fixture
def copy(tmp_path, rows):
    return build_index(tmp_path, rows[:20])


def files_of(index):
    return [str(p.relative_to(index)) for p in sorted(index.rglob("*")) if p.is_file()]


@pytest.mark.parametrize("damage", ["shortened", "flipped", "removed", "emptied"])
def test_any_damaged_file_is_refused_in_one_line(copy, damage):
    for name in files_of(copy):
        path = copy / name
        good = path.read_bytes()
        bad = {
            "shortened": good[:-1],
            "flipped": good[: len(good) // 2]
            + bytes([good[len(good) // 2] ^ 1])
            + good[len(good) // 2 + 1 :],
            "removed": None,
            "emptied": b"",
        }[damage]
        if bad is None:
            path.unlink()
        else:
            path.write_bytes(bad)
        if name == MANIFEST_FILE and damage in ("shortened", "flipped"):
            # A lost last newline is no damage, and a flipped bit shows where it matters.
            path.write_bytes(good[: len(good) // 2])
        with pytest.raises(UserError) as caught:
            open_index(copy)
        assert str(copy) in str(caught.value)
        assert "\n" not in str(caught.value)
        path.write_bytes(good)
    open_index(copy).close()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("format", "another", "not the manifest"),
        ("format_version", 99, "index format 99"),
        ("passages", 21, "21"),
        ("passages", 0, "empty"),
        ("backends", {}, "empty"),
        ("backends", {"bm25": 3}, "damaged"),
        ("files", {"../../etc/passwd": {"bytes": 1, "sha256": ""}}, "damaged"),
        ("files", [], "damaged"),
        ("files", {}, "lists no bm25"),
        ("files", {"": {"bytes": 1, "sha256": ""}}, "lists no bm25"),
        ("passages", float("inf"), "damaged"),
        ("backends", {"bm25": {}}, "damaged.*language"),
        ("backends", {"bm25": []}, "bm25: its settings"),
        ("backends", {"bm25": {"language": "german"}}, "unknown language 'german'"),
        ("backends", {"bm25": {"language": 1}}, "language is not of type str"),
        ("backends", {"foo": {}}, "unknown backend 'foo'"),
        ("backends", {"bm25": {"language": "none"}, "foo": {}}, "unknown backend 'foo'"),
        ("backends", {"dense": {"model": "m", "dimension": 3}}, "damaged.*query_prefix"),
        (
            "backends",
            {"dense": {"model": "m", "dimension": 3, "query_prefix": "", "passage_prefix": ""}},
            "lists no dense",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(copy, field, value, reason):
    path = copy / MANIFEST_FILE
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {field: value}))
    with pytest.raises(UserError, match=reason) as caught:
        open_index(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["offsets.npy", "bm25/indptr.csc.index.npy"])
def test_an_empty_array_is_refused_whatever_the_manifest_says(copy, name):
    (copy / name).write_bytes(b"")
    path = copy / MANIFEST_FILE
    fields = json.loads(path.read_text())
    fields["files"][name]["bytes"] = 0
    path.write_text(json.dumps(fields))
    with pytest.raises(UserError, match=r"unreadable|not a readable"):
        open_index(copy, verify_hashes=False)


def test_skipping_the_hashes_still_checks_sizes(copy):
    path = copy / "passages.jsonl"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"Title 1", b"Title 9", 1))
    open_index(copy, verify_hashes=False).close()
    path.write_bytes(good + b"x")
    with pytest.raises(UserError, match="bytes instead of"):
        open_index(copy, verify_hashes=False)


def test_arrays_that_do_not_fit_together_are_refused(copy):
    """Hashes say nothing about an index written wrongly: numba would read out of bounds."""
    path = copy / "bm25" / "indptr.csc.index.npy"
    indptr = np.load(path)
    indptr[-1] += 1000
    np.save(path, indptr)
    with pytest.raises(UserError, match="do not fit together"):
        open_index(copy, verify_hashes=False)


def test_bm25_and_a_faiss_file_is_refused(tmp_path):
    path = tmp_path / "e5_Flat.index"
    path.write_bytes(b"IxFI" + os.urandom(100))
    with pytest.raises(UserError, match="FAISS") as caught:
        open_index(path, backend="bm25")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backend", ["dense", "hybrid"])
def test_another_backend_than_the_index_has_is_refused(index, backend):
    with pytest.raises(UserError, match=f"an index for bm25, not for {backend}"):
        open_index(index, backend=backend)


def test_a_directory_or_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no manifest\.json"):
        open_index(tmp_path)
    with pytest.raises(UserError, match="no such index"):
        open_index(tmp_path / "missing")


def test_a_model_is_asked_for_and_refused_where_it_belongs(tmp_path, rows):
    with pytest.raises(UserError, match="needs --model"):
        build_index(tmp_path, rows, backend="dense")
    with pytest.raises(UserError, match="--model is for"):
        build_index(tmp_path, rows, model="x")
    with pytest.raises(UserError, match="no such corpus file"):
        index_module.build_index([tmp_path / "none"], tmp_path / "index", BuildOptions())
