"""A run's settings in a file beside verl's metrics, without keys, tokens and passwords.

The trainer writes it when training begins; `verl-msgrpo report` compares runs by it. Needs no verl.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

HIDDEN = "(hidden)"

_SECRET = re.compile(
    r"(api|access|private)[-_]?key|secret|passw|passphrase|credential|authorization|cookie"
    r"|(access|auth|hf|bearer)[-_]?token|(^|[-_.])token$",
    re.I,
)
_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")  # user:password@
_QUERY = re.compile(r"(?<=[?&])([^=&\s]{1,100})=([^&#\s]+)")


def settings_file(metrics: Path) -> Path:
    """Where the settings of a run are: `metrics.config.json` beside `metrics.jsonl`."""
    return metrics.with_suffix(".config.json")


def metrics_file(project: str, experiment: str, environ: Mapping[str, str]) -> Path:
    """Where verl's file logger writes (verl 0.9, `verl.utils.tracking.FileLogger`)."""
    if path := environ.get("VERL_FILE_LOGGER_PATH"):
        return Path(path)
    root = os.path.expanduser(environ.get("VERL_FILE_LOGGER_ROOT", "."))
    return Path(root, project, f"{experiment}.jsonl")


def write_settings(metrics: Path, config: object) -> None:
    """Writes plain nested settings without secrets; what JSON does not know becomes text.

    Raises:
        OSError: the file cannot be written.
        TypeError, RecursionError: a key is neither text nor number; nested too deeply.
    """
    text = json.dumps(without_secrets(config), indent=1, default=str)
    path = settings_file(metrics)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def without_secrets(value: object, is_secret: bool = False) -> object:
    """The same nested settings with HIDDEN for what a key, or a URL, says is secret.

    Args:
        value: mappings, lists and plain values, nested.
        is_secret: whether a key above says so. Numbers too are hidden then, but neither booleans
            nor None.

    Raises:
        RecursionError: nested too deeply.
    """
    if isinstance(value, Mapping):
        return {
            key: without_secrets(item, is_secret or bool(_SECRET.search(str(key))))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(item, is_secret) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if is_secret:
        return HIDDEN
    return _without_secrets_of_urls(value) if isinstance(value, str) else value


def _without_secrets_of_urls(text: str) -> str:
    def hidden(found: re.Match[str]) -> str:
        return f"{found[1]}={HIDDEN}" if _SECRET.search(found[1]) else found[0]

    return _QUERY.sub(hidden, _IN_URL.sub(HIDDEN, text))
