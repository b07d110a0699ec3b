"""`verl-msgrpo index`: arguments to an index."""

import pytest

pytest.importorskip("bm25s")

from tests.search.server.conftest import run_command, write_rows
from verl_msgrpo.search.commands import index
from verl_msgrpo.search.server.index import BuildOptions

ROWS = [{"id": "a", "contents": "A\nred apple"}, {"id": "b", "contents": "B\nred brick"}]


def test_an_index_is_built_and_told_in_a_line(tmp_path, capsys):
    corpus = write_rows(tmp_path / "c.jsonl", ROWS)
    assert run_command(index, "--corpus", corpus, "--output", tmp_path / "index") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'index'}: 2 passages, bm25\n"


def test_every_argument_arrives(monkeypatch):
    seen = []
    monkeypatch.setattr(index, "build_index", lambda *given: seen.append(given) or 0)
    words = "--backend dense --language none --model m --query-prefix q --passage-prefix p"
    more = "--device cuda --batch-size 7"
    paths = ("--corpus", "a", "b", "--output", "o")
    run_command(index, *paths, *words.split(), *more.split())
    ((corpus, output, options),) = seen
    assert ([path.name for path in corpus], output.name) == (["a", "b"], "o")
    assert options == BuildOptions("dense", "none", "m", "q", "p", "cuda", 7)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--output", ""), "an empty name"),
        (("--output", "x", "--batch-size", 0), "allowed is an integer >= 1, got '0'"),
        (("--output", "x", "--batch-size", -1), "allowed is an integer >= 1, got '-1'"),
    ],
)
def test_useless_arguments_are_refused_before_anything_is_built(capsys, words, reason):
    with pytest.raises(SystemExit):
        run_command(index, "--corpus", "c.jsonl", *words)
    assert reason in capsys.readouterr().err
