"""One full run of the quickstart serves every test that only looks at it."""

import pytest

from tests.e2e.runs import Quickstart, Run


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory) -> Quickstart:
    pytest.importorskip("vllm", reason="needs vLLM: bash scripts/setup_cpu.sh")
    return Quickstart(tmp_path_factory.mktemp("quickstart"))


@pytest.fixture(scope="session")
def full_run(quickstart) -> Run:
    """The README's first command, with all of its steps."""
    return quickstart.run("full")
