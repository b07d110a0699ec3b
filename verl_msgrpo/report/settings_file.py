"""A run's resolved settings in a file beside verl's metrics, for the report to compare."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from verl_msgrpo.report.without_secrets import without_secrets


def settings_file(metrics: Path) -> Path:
    """Where the settings of a run stand: `metrics.config.json` beside `metrics.jsonl`."""
    return metrics.with_suffix(".config.json")


def metrics_file(project: str, experiment: str, environ: Mapping[str, str]) -> Path:
    """Where verl's file logger writes (verl 0.9, `verl.utils.tracking.FileLogger`)."""
    if path := environ.get("VERL_FILE_LOGGER_PATH"):
        return Path(path)
    root = os.path.expanduser(environ.get("VERL_FILE_LOGGER_ROOT", "."))
    return Path(root, project, f"{experiment}.jsonl")


def write_settings(metrics: Path, config: object) -> None:
    """Writes plain nested settings without secrets, and what is no JSON as text.

    Raises:
        OSError: the file cannot be written.
        TypeError, RecursionError: a key is neither text nor number; nested too deeply.
    """
    text = json.dumps(without_secrets(config), indent=1, default=str)
    path = settings_file(metrics)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")
