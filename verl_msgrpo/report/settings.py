"""What a run was started with, flat: `algorithm.adv_estimator` -> `"ms_grpo"`."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from verl_msgrpo.report.printed_settings import read_printed_settings
from verl_msgrpo.verl_plugin.settings_file import settings_file, without_secrets

METRICS = "metrics.jsonl"
MAX_FILE_BYTES = 2**23
MAX_SETTINGS = 20_000
MAX_VALUE_CHARS = 10_000


@dataclasses.dataclass(frozen=True)
class Settings:
    """Attributes:
    source: the file's name.
    values: JSON under dotted names.
    """

    source: str
    values: dict[str, str]


def read_settings(metrics: Path) -> Settings | None:
    """Looks beside a run's metrics; None where nothing is found that can be read.

    In this order: the file that our trainer writes, Hydra's `.hydra/config.yaml`, and the
    configuration that verl prints, in `train.log`. The last two name no run, so they count only
    where the folder holds a run's `metrics.jsonl` and not the logs of several.
    """
    readers: list[tuple[Path, Callable[[Path], object]]] = [(settings_file(metrics), _json)]
    if metrics.name == METRICS:
        folder = metrics.parent
        readers.append((folder / ".hydra" / "config.yaml", _yaml))
        readers.append((folder / "train.log", read_printed_settings))
    for path, reader in readers:
        try:
            nested = without_secrets(reader(path))
            values = dict(_flat(nested)) if isinstance(nested, Mapping) else {}
        except (OSError, ValueError, RecursionError):
            continue
        if values:
            return Settings(path.name, values)
    return None


def _json(path: Path) -> object:
    return json.loads(_text(path))


def _yaml(path: Path) -> object:
    import yaml

    text = _text(path)
    try:
        # Aliases can nest a value in itself, or in few bytes a billion times; Hydra writes none.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            return None
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError from error


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"{path}: longer than {MAX_FILE_BYTES} bytes")
    return data.decode()


def _flat(nested: Mapping[object, object]) -> Iterator[tuple[str, str]]:
    """(dotted name, JSON) of each value. Raises ValueError where there are too many."""
    left = [("", nested)]
    count = 0
    while left:
        prefix, mapping = left.pop()
        for key, value in mapping.items():
            count += 1
            if count > MAX_SETTINGS:
                raise ValueError("too many settings")
            name = f"{prefix}{str(key)[:200]}"
            if isinstance(value, Mapping):
                left.append((f"{name[:1000]}.", value))
            elif not (isinstance(value, str) and "${" in value):  # Hydra's, unresolved
                yield name, _as_json(value)


def _as_json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)[:MAX_VALUE_CHARS]
