"""The agent loop and the client against `verl-msgrpo serve` itself."""

import asyncio

import pytest

from tests.search.fakes import ScriptedModel, build_tokenizer
from tests.search.rollouts import ANSWER, call, counts, rollout, search_tool, text_of
from verl_msgrpo.search.client import RetrievalClient
from verl_msgrpo.search.settings import ClientSettings

servers = pytest.importorskip("tests.search.server.conftest")

ROWS = [
    {"id": "1", "contents": "Dune\nA novel by Frank Herbert, of 1965."},
    {"id": "2", "contents": "Solaris\nA novel by Stanislaw Lem, of 1961."},
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    directory = tmp_path_factory.mktemp("served")
    with servers.served(directory, "--index", servers.build_index(directory, ROWS)) as running:
        running.url += "/retrieve"
        yield running


def test_a_rollout(served):
    tokenizer = build_tokenizer()
    turns = [call({"query_list": ["who wrote Dune", "Stanislaw"]}), ANSWER]
    output = rollout(ScriptedModel(tokenizer, turns), [search_tool(served)])
    observed = text_of(output, tokenizer, mask=0)
    first, second = observed.split("Results for query 2:")
    assert "Doc 1(Title: Dune) A novel by Frank Herbert, of 1965.\n" in first
    assert "Doc 1(Title: Solaris) A novel by Stanislaw Lem, of 1961.\n" in second
    assert counts(output) == {"searches": 2}


def test_many_at_once(served):
    """200 searches at one time, each answered; the server counts what the client sent."""

    async def main():
        client = RetrievalClient(ClientSettings(served.url, cache_size=0, max_in_flight=200))
        try:
            return await asyncio.gather(
                *(client.search([f"{'Dune' if i % 2 else 'Solaris'} {i}"]) for i in range(200))
            )
        finally:
            await client.close()

    for i, (found,) in enumerate(asyncio.run(main())):
        assert found.error is None
        assert found.passages[0].startswith("Dune" if i % 2 else "Solaris")
