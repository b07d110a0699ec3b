"""Runs of examples/quickstart/run.sh, with a probe that writes down what the real trainer saw."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A run takes one to four minutes on two cores that do nothing else, and this long when it hangs.
LIMIT_S = 3600
# run.sh ends all that it started within half a minute; see scripts/whole_tree.py.
END_S = 300
# What a developer may have set in the shell, and what would make these runs other runs.
KNOBS = ("ADV_ESTIMATOR", "STEPS", "SEED", "ROLLOUT_N", "TRAIN_BATCH_SIZE", "ACTOR_LR", "DEVICE")
KNOBS += ("BACKEND", "RANKS", "SEARCH_URL", "RAY_ADDRESS", "VERL_FILE_LOGGER_ROOT")


@dataclass(frozen=True)
class Run:
    """One run of the quickstart: where its files are, and what it printed."""

    folder: Path
    output: str

    @property
    def steps(self) -> list[dict]:
        return read_jsonl(self.folder / "steps.jsonl")

    @property
    def states(self) -> list[dict]:
        return read_jsonl(self.folder / "state.jsonl")

    @property
    def turns(self) -> list[dict]:
        return read_jsonl(self.folder / "turns.jsonl")

    @property
    def metrics(self) -> list[dict]:
        return read_jsonl(self.folder / "run" / "metrics.jsonl")

    @property
    def trained(self) -> list[dict]:
        """The metrics of each training step."""
        return [entry["data"] for entry in self.metrics if "actor/grad_norm" in entry["data"]]


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Quickstart:
    """Starts runs that share one set of data."""

    def __init__(self, base: Path) -> None:
        self.base = base

    @property
    def model(self) -> Path:
        """The policy before training."""
        return self.base / "data" / "model"

    def output(self, name: str) -> str:
        """What the run has printed so far."""
        return (self.base / name / "output.txt").read_text(errors="replace")

    def start(
        self, name: str, *overrides: str, process_group: int | None = None, **knobs: object
    ) -> subprocess.Popen[bytes]:
        folder = self.base / name
        folder.mkdir()
        environment = {
            **{key: value for key, value in os.environ.items() if key not in KNOBS},
            "VENV": sys.prefix,
            "DATA_DIR": str(self.base / "data"),
            "RUN_DIR": str(folder / "run"),
            "PROBE_DIR": str(folder),
            "VERL_USE_EXTERNAL_MODULES": "probe",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT)]),
            **{key: str(value) for key, value in knobs.items()},
        }
        # A file: a pipe would be full one day, and stay open as long as any process has it.
        with (folder / "output.txt").open("wb") as output:
            return subprocess.Popen(
                ["bash", str(ROOT / "examples/quickstart/run.sh"), *overrides],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=process_group,
            )

    def run(self, name: str, *overrides: str, **knobs: object) -> Run:
        process = self.start(name, *overrides, **knobs)
        try:
            code = process.wait(timeout=LIMIT_S)
        finally:
            end(process)
        assert code == 0, self.output(name)
        return Run(self.base / name, self.output(name))


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a run if it has not ended, with all its processes."""
    if process.poll() is None:
        process.terminate()
        process.wait(timeout=END_S)
