"""A run's resolved settings in a file beside verl's metrics, for the report to compare."""

import json
import os
from collections.abc import Mapping
from pathlib import Path


def settings_file(metrics: Path) -> Path:
    """Where the settings of a run stand: `metrics.config.json` beside `metrics.jsonl`."""
    return metrics.with_suffix(".config.json")


def metrics_file(project: str, experiment: str, environ: Mapping[str, str]) -> Path:
    """Where verl's file logger writes (verl 0.9, `verl.utils.tracking.FileLogger`)."""
    if path := environ.get("VERL_FILE_LOGGER_PATH"):
        return Path(path)
    root = os.path.expanduser(environ.get("VERL_FILE_LOGGER_ROOT", "."))
    return Path(root, project, f"{experiment}.jsonl")


def write_settings(metrics: Path, config: Mapping[str, object]) -> None:
    """Writes plain settings (what is no JSON, as text). Raises OSError."""
    path = settings_file(metrics)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1, default=str) + "\n", encoding="utf-8")
