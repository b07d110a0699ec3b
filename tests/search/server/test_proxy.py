"""--record and --replay; --remote is tested with real servers in test_endpoint.py."""

import errno
import json

import pytest

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.backends import Hit, proxy
from verl_msgrpo.search.server.backends.proxy import RecordingBackend, ReplayBackend
from verl_msgrpo.search.server.protocol import Metrics


class Counting:
    """Answers with the number of the call."""

    name = "counting"
    passages = 5

    def __init__(self):
        self.calls = 0

    def search(self, queries, k):
        self.calls += 1
        document = json.dumps({"id": str(self.calls), "contents": "é\n🦀"}, ensure_ascii=False)
        return [[Hit(document.encode(), 0.1 + self.calls)] * (k if q else 0) for q in queries]

    def close(self):
        pass


def record(path, *searches):
    backend = RecordingBackend(Counting(), path, Metrics())
    results = [backend.search(queries, k) for queries, k in searches]
    backend.close()
    return results


def parsed(results):
    return [[(json.loads(hit.document), hit.score) for hit in hits] for hits in results]


def test_replayed_answers_are_identical(tmp_path):
    path = tmp_path / "r.jsonl"
    asked = (["a", "", 'quote " \n newline 🦀', "\ufffd"], 2)
    (recorded,) = record(path, asked)
    replay = ReplayBackend(path, Metrics())
    assert parsed(replay.search(*asked)) == parsed(recorded)
    replay.close()


def test_each_query_is_written_once_a_top_k(tmp_path):
    path = tmp_path / "r.jsonl"
    record(path, (["a", "a"], 1), (["a"], 1), (["a"], 2))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["query"], row["topk"]) for row in rows] == [("a", 1), ("a", 2)]


def test_what_is_remembered_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(proxy, "_MAX_REMEMBERED", 2)
    path = tmp_path / "r.jsonl"
    record(path, (["a"], 1), (["b"], 1), (["a"], 1), (["c"], 1), (["a"], 1), (["b"], 1))
    queries = [json.loads(line)["query"] for line in path.read_text().splitlines()]
    assert queries == ["a", "b", "c", "b"]


def test_an_unknown_query_has_no_hits_and_is_counted(tmp_path):
    path = tmp_path / "r.jsonl"
    record(path, (["a"], 1))
    metrics = Metrics()
    replay = ReplayBackend(path, metrics)
    assert [len(hits) for hits in replay.search(["a", "b"], 1)] == [1, 0]
    assert replay.search(["a"], 2) == [[]]  # another top-k is another question
    replay.close()
    assert metrics.registry.get_sample_value("retrieval_replay_misses_total") == 2


def test_a_line_cut_by_a_kill_is_dropped_and_recording_goes_on(tmp_path):
    path = tmp_path / "r.jsonl"
    record(path, (["a"], 1))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-10])
    replay = ReplayBackend(path, Metrics())
    assert len(replay.search(["a"], 1)[0]) == 1
    replay.close()
    record(path, (["b"], 1))
    assert [json.loads(line)["query"] for line in path.read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    "line",
    [
        "rubbish",
        "[]",
        '{"query": 1, "topk": 1, "result": []}',
        '{"query": "a", "topk": 1}',
        '{"query": "a", "topk": 1, "result": [{"document": {}}]}',
        '{"query": "a", "topk": 1, "result": [{"document": {"id": "1"}, "score": 1.0}]}',
        '{"query": "a", "topk": 1, "result": [{"document": {"contents": "x"}, "score": NaN}]}',
        '{"query": "a", "topk": 1, "result": [{"document": {"contents": "x"}, "score": "1"}]}',
        "[" * 50_000,
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "r.jsonl"
    record(path, (["a"], 1))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(UserError, match="line 2"):
        ReplayBackend(path, Metrics())


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        ReplayBackend(tmp_path / "none", Metrics())
    (tmp_path / "empty").touch()
    with pytest.raises(UserError, match="no recorded row"):
        ReplayBackend(tmp_path / "empty", Metrics())
    with pytest.raises(UserError, match="cannot be written"):
        RecordingBackend(Counting(), tmp_path, Metrics())


class FullDisk:
    """A file that takes nothing more."""

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    flush = close = lambda self: self.write(b"")


def test_a_full_disk_never_fails_a_search(tmp_path):
    metrics = Metrics()
    backend = RecordingBackend(Counting(), tmp_path / "r.jsonl", metrics)
    backend._file.close()
    backend._file = FullDisk()
    assert len(backend.search(["a"], 1)[0]) == 1
    assert len(backend.search(["b", "c"], 1)) == 2
    backend.close()
    assert metrics.registry.get_sample_value("retrieval_unrecorded_queries_total") == 3


def test_a_lone_surrogate_in_a_recorded_document_is_replaced(tmp_path):
    path = tmp_path / "r.jsonl"
    row = {"document": {"id": "1", "contents": "a\ud800"}, "score": 1}
    path.write_text(json.dumps({"query": "q", "topk": 1, "result": [row]}) + "\n")
    replay = ReplayBackend(path, Metrics())
    assert replay.search(["q"], 1) == [[Hit(b'{"id": "1", "contents": "a?"}', 1.0)]]
    replay.close()
