"""`verl-msgrpo serve`: arguments to what is served."""

import pickle
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from tests.search.server.conftest import run_command
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.commands import serve
from verl_msgrpo.search.server import endpoint
from verl_msgrpo.search.server.options import Limits, ServeOptions


@pytest.fixture
def options_of(monkeypatch):
    """Runs the command and returns what it would have served."""

    def run(*words):
        seen = []
        monkeypatch.setattr(endpoint, "serve", seen.append)
        assert run_command(serve, *words) == 0
        return seen[0]

    return run


def test_the_defaults(options_of):
    assert options_of("--index", "i") == ServeOptions(index=Path("i"))
    assert options_of("--remote", "u") == ServeOptions(remote="u")
    assert options_of("--replay", "f") == ServeOptions(replay=Path("f"))


def test_every_argument_arrives(options_of):
    words = (
        "--index i --backend dense --scorer numba --device cuda --skip-verify --host h --port 7 "
        "--port-file p --threads 2 --max-batch 3 --max-waiting 4 --max-connections 5 --timeout 6.5 "
        "--topk 8 --max-topk 9 --max-queries 10 --max-results 11 --max-query-chars 12 "
        "--max-body-bytes 13 --max-answer-bytes 14"
    )
    given = options_of(*words.split())
    expected = ServeOptions(
        index=Path("i"),
        backend="dense",
        scorer="numba",
        device="cuda",
        verify_hashes=False,
        host="h",
        port=7,
        port_file=Path("p"),
        threads=2,
        max_batch=3,
        max_waiting=4,
        max_connections=5,
        timeout_s=6.5,
        limits=Limits(8, 9, 10, 11, 12, 13, 14),
    )
    assert given == expected
    default = ServeOptions(index=Path("i"))
    same = {f.name for f in fields(given) if getattr(given, f.name) == getattr(default, f.name)}
    assert same <= {"index", "remote", "replay", "record", "replicas", "threads"}
    assert options_of("--index", "i", "--record", "r").record == Path("r")
    assert options_of("--index", "i", "--replicas", "2").replicas == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--index i --topk 200", "--topk 200 is above --max-topk 100"),
        ("--replay f --record g", "--record and --replay exclude each other"),
        ("--remote u --backend bm25", "--backend chooses a part of an --index"),
        ("--index i --record g --replicas 2", "--record needs one process"),
    ],
)
def test_contradictions_are_named(words, reason):
    with pytest.raises(UserError, match=reason):
        run_command(serve, *words.split())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--topk 0", "argument --topk: allowed is an integer >= 1, got '0'"),
        ("--port 70000", "argument --port: allowed is an integer from 0 to 65535, got '70000'"),
        ("--port x", "argument --port: allowed is an integer from 0 to 65535, got 'x'"),
        ("--timeout 0", "argument --timeout: allowed is a number from 0.001 to 86400, got '0'"),
        ("--timeout nan", "argument --timeout: allowed is a number from 0.001 to 86400, got 'nan'"),
        ("--replay f", "not allowed with argument --index"),
    ],
)
def test_numbers_out_of_range_are_refused_by_their_flag(capsys, words, reason):
    with pytest.raises(SystemExit):
        run_command(serve, "--index", "i", *words.split())
    assert reason in capsys.readouterr().err


def test_the_options_travel_to_replicas(tmp_path):
    options = ServeOptions(index=tmp_path, replicas=2, limits=Limits(max_topk=7))
    assert pickle.loads(pickle.dumps(options)) == options


def test_something_must_be_served():
    with pytest.raises(UserError, match="one of --index, --remote and --replay is needed"):
        ServeOptions()
