"""The real main_ppo while its retrieval server is killed, slow, answers rubbish or is overloaded.

`FAULT_STEPS` training steps with each fault (default 2), and as many (two or more) after each with
the server as it should be. When the policy searches and how fast the machine is does not matter:
what the client counted is compared with what the server saw. scripts/search_faults.sh runs the same
at full size and shows the table.
"""

import asyncio
import contextlib
import itertools
import json
import math
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("bm25s")
pytest.importorskip("fastapi")

from tests.e2e.fault_server import FAULTS, LATE_S, RUBBISH
from tests.e2e.runs import END_S, ROOT, Quickstart, Run, read_jsonl
from verl_msgrpo.search.client import RetrievalClient
from verl_msgrpo.search.settings import ClientSettings

STEPS = int(os.environ.get("FAULT_STEPS", "2"))
# The longer the server was down, the longer the client waits until it asks again. In the last step
# but one at the latest it does, and in the last one it has found out that the server works.
RECOVERY_STEPS = max(2, STEPS)
SCHEDULE = ["ok"] * STEPS
PAUSES = []
for fault in FAULTS:
    SCHEDULE += [fault] * STEPS + ["ok"] * RECOVERY_STEPS
    PAUSES.append(len(SCHEDULE) - 1)
ROLLOUTS = 64
ROLLOUT_TIMEOUT_S = 900.0
REQUEST_TIMEOUT_S = 5.0  # of a server that answers in some 10 ms
MAX_RETRIES = 1
START_S = 1000


@dataclass(frozen=True)
class FaultServer:
    """A running fault server."""

    url: str
    control: str

    def switch(self, fault: str, step: int) -> None:
        self._open("/phase", json.dumps({"fault": fault, "step": step}).encode())

    def phases(self) -> list[dict]:
        return json.loads(self._open("/phases"))

    def _open(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            self.control + path, body, {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=START_S) as answer:
            return answer.read()


@contextlib.contextmanager
def fault_server(folder: Path, rows: list[dict]):
    """Runs fault_server.py over an index of these rows."""
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["index", "--corpus", str(folder / "corpus.jsonl"), "--output", str(folder / "index")]
    subprocess.run([sys.executable, "-m", "verl_msgrpo.cli", *words], check=True, timeout=START_S)
    words = [str(Path(__file__).with_name("fault_server.py")), "--index", str(folder / "index")]
    words += ["--address-file", str(folder / "address.json")]
    process = subprocess.Popen([sys.executable, *words])
    try:
        deadline = time.monotonic() + START_S
        while not (folder / "address.json").exists():
            assert process.poll() is None, "the fault server did not start"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield FaultServer(**json.loads((folder / "address.json").read_text()))
    finally:
        process.terminate()
        process.wait(timeout=END_S)


ROWS = [{"id": str(i), "contents": f"Title {i}\nword{i} and more"} for i in range(20)]


def ask(server: FaultServer, times: int = 1, **settings) -> list:
    """The answers to `times` searches, one after the other, of a client of their own each."""

    async def asked():
        found = []
        for _ in range(times):
            client = RetrievalClient(ClientSettings(server.url, max_retries=0, **settings))
            found += await client.search(["word7"])
            await client.close()
        return found

    return asyncio.run(asked())


def test_the_fault_server_does_what_it_says(tmp_path):
    with fault_server(tmp_path, ROWS) as server:
        (found,) = ask(server)
        assert found.passages[0] == "Title 7\nword7 and more"

        server.switch("killed", 1)
        errors = [found.error for found in ask(server, times=2)]
        assert "no connection" in errors[0]
        assert errors[1] == "no connection (ClientConnectorError)"

        server.switch("rubbish", 2)
        assert all(found.error for found in ask(server, times=len(RUBBISH)))

        server.switch("overloaded", 3)
        assert [found.error for found in ask(server)] == ["the search service is overloaded"]

        server.switch("slow", 4)
        late = ask(server, times=3, timeout=REQUEST_TIMEOUT_S)
        assert [found.error for found in late] == ["no answer in time"] * 2 + [None]
        assert late[2].seconds >= LATE_S

        server.switch("ok", 5)
        assert ask(server)[0].passages
        phases = server.phases()
    assert [(phase["queries"], phase["answered"]) for phase in phases] == [
        (1, 1),
        (1, 0),
        (len(RUBBISH), 0),
        (1, 0),
        (3, 1),
        (1, 1),
    ]
    assert phases[2]["rubbish"] == dict.fromkeys(RUBBISH, 1)


@dataclass(frozen=True)
class Step:
    """A training step, as the client and the server saw it."""

    number: int
    metrics: dict[str, float]
    rollouts: list[dict]
    server: dict
    read: list[str]

    @property
    def fault(self) -> str:
        return SCHEDULE[self.number - 1]

    @property
    def settled(self) -> bool:
        """Whether the client has found out that the server works."""
        return self.fault == "ok" and SCHEDULE[self.number : self.number + 1] != ["ok"]

    @property
    def seconds(self) -> list[float]:
        """Of each search."""
        return [value for rollout in self.rollouts for value in rollout["counts"]["seconds"]]

    def count(self, name: str) -> int:
        return sum(rollout["counts"][name] for rollout in self.rollouts)


def by_phase(steps: list[Step]) -> list[list[Step]]:
    """Consecutive steps with the same fault, or with none."""
    return [list(phase) for _, phase in itertools.groupby(steps, key=lambda step: step.fault)]


def table(steps: list[Step]) -> str:
    """What happened in each phase; latencies are those of all searches, in seconds."""
    head = ["steps", "server", "attempted", "failed", "shared", "arrived", "answered"]
    head += ["p50 s", "p95 s", "longest rollout s"]
    rows = [head]
    for phase in by_phase(steps):
        rollouts = [rollout for step in phase for rollout in step.rollouts]
        seconds = [value for step in phase for value in step.seconds]
        counts = [sum(s.count(name) for s in phase) for name in ("searches", "failed", "cached")]
        counts += [sum(s.server[name] for s in phase) for name in ("queries", "answered")]
        times = [*np.percentile(seconds, [50, 95]), max(r["seconds"] for r in rollouts)]
        numbers = f"{phase[0].number}-{phase[-1].number}"
        rows.append([numbers, phase[0].fault, *map(str, counts), *(f"{t:.2f}" for t in times)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


TOOL = f"""\
tools:
  - class_name: verl_msgrpo.search.SearchTool
    config:
      type: native
      retrieval_service_url: ${{oc.env:RETRIEVAL_SERVICE_URL}}
      timeout: {REQUEST_TIMEOUT_S}
      max_retries: {MAX_RETRIES}
      cache_size: 0
"""
LOOP = f"""\
- name: search_tool_agent
  _target_: verl_msgrpo.search.search_tool_agent.SearchToolAgentLoop
  rollout_timeout: {ROLLOUT_TIMEOUT_S}
"""


@pytest.fixture(scope="module")
def steps(quickstart: Quickstart, tmp_path_factory) -> list[Step]:
    """One training through the whole schedule."""
    sys.path.insert(0, str(ROOT / "examples/quickstart"))
    from knowledge_base import load_countries, passages

    folder = tmp_path_factory.mktemp("fault-server")
    (folder / "tool.yaml").write_text(TOOL)
    (folder / "loop.yaml").write_text(LOOP)
    with fault_server(folder, passages(load_countries())) as server:
        run = quickstart.run(
            "faults",
            "trainer.test_freq=-1",
            "trainer.save_freq=-1",
            "trainer.val_before_train=False",
            f"actor_rollout_ref.rollout.multi_turn.tool_config_path={folder}/tool.yaml",
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder}/loop.yaml",
            STEPS=len(SCHEDULE),
            SEARCH_URL=server.url,
            FAULT_CONTROL=server.control,
            FAULT_PHASES=",".join(SCHEDULE),
            FAULT_PAUSES=",".join(map(str, PAUSES)),
            VERL_USE_EXTERNAL_MODULES="probe,fault_hook",
        )
        phases = {phase["step"]: phase for phase in server.phases()}
    found = gather(run, phases)
    print(f"\n{table(found)}\n")
    return found


def gather(run: Run, phases: dict[int, dict]) -> list[Step]:
    """The steps that the trainer finished."""
    rollouts = read_jsonl(run.folder / "rollouts.jsonl")
    read = {step["step"]: [row["read"] for row in step["rows"]] for step in run.steps}
    return [
        Step(
            number=entry["step"],
            metrics=entry["data"],
            rollouts=[rollout for rollout in rollouts if rollout["step"] == entry["step"]],
            server=phases[entry["step"]],
            read=read[entry["step"]],
        )
        for entry in run.metrics
        if "actor/grad_norm" in entry["data"]
    ]


@pytest.mark.e2e
def test_training_finishes_every_step(steps: list[Step]):
    assert [step.number for step in steps] == list(range(1, len(SCHEDULE) + 1))
    for step in steps:
        assert len(step.rollouts) == len(step.read) == ROLLOUTS
        assert math.isfinite(step.metrics["actor/pg_loss"])
        assert math.isfinite(step.metrics["actor/grad_norm"])


@pytest.mark.e2e
def test_searches_are_attempted_in_every_phase(steps: list[Step]):
    for step in steps:
        attempted = step.metrics["search/per_rollout/mean"] * ROLLOUTS
        assert attempted == pytest.approx(step.count("searches"))
    for phase in by_phase(steps):
        assert sum(step.count("searches") for step in phase) > 0


@pytest.mark.e2e
def test_no_rollout_waits_for_its_deadline(steps: list[Step]):
    """A search ends within its own deadline, which is far from that of a rollout."""
    for step in steps:
        assert all(rollout["ended"] != "deadline" for rollout in step.rollouts)
        assert step.metrics["search/ended/deadline_share"] == 0


@pytest.mark.e2e
def test_the_metrics_show_what_happened(steps: list[Step]):
    for step in steps:
        searches = step.count("searches")
        if not searches:
            continue
        failed = step.metrics["search/failed_share"]
        assert failed == pytest.approx(step.count("failed") / searches)
        p95_s = np.percentile(step.seconds, 95)
        assert step.metrics["search/latency_p95_s"] == pytest.approx(p95_s)
        if step.fault in ("killed", "rubbish", "overloaded"):
            assert failed == 1
        elif step.settled:
            assert failed < 1
    slow = [step for step in steps if step.fault == "slow"]
    assert sum(step.count("failed") for step in slow) > 0
    assert max(second for step in slow for second in step.seconds) > 0.9 * LATE_S


@pytest.mark.e2e
def test_client_and_server_agree(steps: list[Step]):
    for step in steps:
        arrived, answered = step.server["queries"], step.server["answered"]
        served = step.count("searches") - step.count("failed") - step.count("cached")
        assert served <= answered <= arrived
        # A search is one query, asked again after a failure or shared with an equal one. While the
        # circuit breaker is open, no query arrives.
        assert arrived <= (1 + MAX_RETRIES) * (step.count("searches") - step.count("cached"))
        if step.settled:
            assert served > 0
        elif step.fault in ("killed", "rubbish", "overloaded"):
            assert answered == 0
    # The client found the server working before each fault, so it asked when the fault began.
    requests = {
        fault: sum(step.server["requests"] for step in steps if step.fault == fault)
        for fault in FAULTS
    }
    assert all(requests.values())
    # Those that were on their way when it died; from then on the connections are refused.
    assert requests["killed"] <= ROLLOUTS
    # Each kind in turn.
    kinds = {kind for step in steps for kind in step.server["rubbish"]}
    assert len(kinds) == min(requests["rubbish"], len(RUBBISH))


@pytest.mark.e2e
def test_the_model_reads_why(steps: list[Step]):
    """A failed search, or a malformed call; an observation without room is dropped."""
    for step in steps:
        told = sum("Search error: " in text for text in step.read)
        counts = [(rollout["counts"], rollout["ended"]) for rollout in step.rollouts]
        assert told <= sum(bool(count["failed"] or count["malformed"]) for count, _ in counts)
        assert told >= sum(count["failed"] > 0 and end != "truncated" for count, end in counts)
    for fault in FAULTS:
        read = [text for step in steps if step.fault == fault for text in step.read]
        assert any("Search error: " in text for text in read)
