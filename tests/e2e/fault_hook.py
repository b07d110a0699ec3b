"""Loaded into every process of the fault test, beside `probe`; see there.

Before training step i the fault server (`$FAULT_CONTROL`) is switched to the i-th of
`$FAULT_PHASES`. The steps of `$FAULT_PAUSES` start LONGEST_PAUSE_S later, so that the first
search in them asks the server, however long the client had found it down. For each rollout one JSON
is appended to `$PROBE_DIR/rollouts.jsonl`: its step, how long it took, why it ended and what it
counted.
"""

import json
import os
import time
import urllib.request
from pathlib import Path
from types import ModuleType

from wrapt import when_imported

from verl_msgrpo.search.client import LONGEST_PAUSE_S

SWITCH_S = 1000  # it may start a server


@when_imported("verl.trainer.ppo.v1.trainer_base")
def _switch_faults(trainer_base: ModuleType) -> None:
    original = trainer_base.PPOTrainer.step
    faults = os.environ["FAULT_PHASES"].split(",")
    pauses = set(map(int, os.environ["FAULT_PAUSES"].split(",")))

    def step(self, *args, **kwargs):
        wanted = {"fault": faults[self.global_steps - 1], "step": self.global_steps}
        request = urllib.request.Request(
            os.environ["FAULT_CONTROL"] + "/phase",
            json.dumps(wanted).encode(),
            {"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(request, timeout=SWITCH_S).close()
        if self.global_steps in pauses:
            time.sleep(LONGEST_PAUSE_S + 0.5)
        return original(self, *args, **kwargs)

    trainer_base.PPOTrainer.step = step


@when_imported("verl_msgrpo.search.search_tool_agent")
def _record_rollouts(search_tool_agent: ModuleType) -> None:
    original = search_tool_agent.SearchToolAgentLoop.run

    async def run(self, sampling_params, **kwargs):
        started = time.monotonic()
        output = await original(self, sampling_params, **kwargs)
        entry = {
            "step": int(kwargs["global_steps"]),
            "seconds": time.monotonic() - started,
            "ended": output.extra_fields["search_ended"],
            "counts": output.extra_fields["search"],
        }
        with (Path(os.environ["PROBE_DIR"]) / "rollouts.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return output

    search_tool_agent.SearchToolAgentLoop.run = run
