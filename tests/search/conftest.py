"""What the tests of both agent loops start from."""

import pytest

from tests.search.fakes import build_tokenizer, retrieval_server


@pytest.fixture
def server():
    with retrieval_server() as running:
        running.contents = ["Dune\nA novel by Frank Herbert."]
        yield running


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()
