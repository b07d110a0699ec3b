"""Runs of examples/quickstart/run.sh, with a probe that writes down what the real trainer saw."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
    def metrics(self) -> list[dict]:
        return read_jsonl(self.folder / "run" / "metrics.jsonl")


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Quickstart:
    """Starts runs that share one set of data."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def start(self, name: str, *overrides: str, **knobs: object) -> subprocess.Popen[str]:
        folder = self.base / name
        folder.mkdir()
        environment = {
            **os.environ,
            "VENV": sys.prefix,
            "DATA_DIR": str(self.base / "data"),
            "RUN_DIR": str(folder / "run"),
            "PROBE_DIR": str(folder),
            "VERL_USE_EXTERNAL_MODULES": "probe",
            "PYTHONPATH": str(Path(__file__).parent),
            **{key: str(value) for key, value in knobs.items()},
        }
        return subprocess.Popen(
            ["bash", str(ROOT / "examples/quickstart/run.sh"), *overrides],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, name: str, *overrides: str, **knobs: object) -> Run:
        process = self.start(name, *overrides, **knobs)
        output, _ = process.communicate(timeout=1800)
        assert process.returncode == 0, output
        return Run(self.base / name, output)
