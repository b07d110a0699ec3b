"""A run as its files tell it: verl's metrics by step, and the settings it was started with.

The metrics are what verl's file logger wrote. The settings are in the file that our trainers write
beside them; of a run without that file, such as one of another program, they are unknown.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from verl_msgrpo.common.json_lines import lines_of
from verl_msgrpo.common.numbers import finite
from verl_msgrpo.errors import UserError
from verl_msgrpo.verl_plugin.settings_file import settings_file, without_secrets

METRICS = "metrics.jsonl"
MAX_SETTINGS_BYTES = 2**23
MAX_SETTINGS = 20_000
MAX_VALUE_CHARS = 10_000

Series = dict[int, float]  # step -> value; the steps ascend, the values are finite
Settings = dict[str, str]  # dotted name -> JSON: algorithm.adv_estimator -> "ms_grpo"


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """Attributes:
    metrics_file: what verl's file logger wrote.
    name: of the folder, or of the file where that is not called metrics.jsonl.
    metrics: a series under each name.
    last_step: the last step with any metric.
    unread: lines without metrics in them.
    settings: None where they are unknown.
    """

    metrics_file: Path
    name: str
    metrics: dict[str, Series]
    last_step: int
    unread: int
    settings: Settings | None

    @property
    def folder(self) -> Path | None:
        """The run's own folder; None where the file may share its folder with other runs."""
        return self.metrics_file.parent if self.metrics_file.name == METRICS else None


def read_run(path: Path, wanted: Callable[[str], bool]) -> Run:
    """Reads the wanted metrics of a run.

    Args:
        path: a folder with `metrics.jsonl`, or the file of verl's file logger. Of a run that was
            resumed, `metrics.1.jsonl`, `metrics.2.jsonl`, ... beside it are its earlier parts, each
            up to the step at which the next one begins.
        wanted: says of a metric's name whether to keep it.

    Raises:
        UserError: there is no such run, or it has no metrics.
    """
    metrics_file = find_metrics(path)
    steps: dict[int, dict[str, float]] = {}
    unread = 0
    for file in [*_earlier_parts(metrics_file), metrics_file]:
        part, foreign = _read_part(file, wanted)
        unread += foreign
        begin = min(part, default=None)
        if begin is not None:  # what was done after the checkpoint it resumed from is void
            steps = {step: data for step, data in steps.items() if step < begin} | part
    values: dict[str, Series] = {}
    for step in sorted(steps):
        for name, number in steps[step].items():
            values.setdefault(name, {})[step] = number
    last_step = max(steps, default=-1)
    if last_step < 0:
        raise UserError(f'{metrics_file}: no line of verl\'s file logger, {{"step": ..., "data"')
    return Run(
        metrics_file=metrics_file,
        name=_name(metrics_file),
        metrics=values,
        last_step=last_step,
        unread=unread,
        settings=read_settings(metrics_file),
    )


def _read_part(
    file: Path, wanted: Callable[[str], bool]
) -> tuple[dict[int, dict[str, float]], int]:
    """The wanted metrics of each step, and how many lines hold none."""
    part: dict[int, dict[str, float]] = {}
    unread = 0
    for row in whole_lines(file):
        step, data = (row.get("step"), row.get("data")) if row else (None, None)
        if type(step) is not int or step < 0 or not isinstance(data, dict):
            unread += 1
            continue
        numbers = {name: finite(value) for name, value in data.items() if wanted(name)}
        known = {name: number for name, number in numbers.items() if number is not None}
        part.setdefault(step, {}).update(known)
    return part, unread


def find_metrics(path: Path) -> Path:
    """The metrics of a run that is named by its folder or the file itself."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"{path}: no such run; name a folder with {METRICS}, or such a file")
    if not (path / METRICS).is_file():
        others = sorted(file.name for file in path.glob("*.jsonl"))
        hint = f"; is it {path / others[0]}?" if others else ""
        raise UserError(f"{path}: no {METRICS} in it (trainer.logger='[console,file]'){hint}")
    return path / METRICS


def _earlier_parts(metrics_file: Path) -> list[Path]:
    """What the recipes kept before verl began the file anew, in order."""
    if metrics_file.name != METRICS:
        return []  # qwen2.5.jsonl beside qwen2.jsonl is another run
    parts: dict[int, Path] = {}
    for path in metrics_file.parent.glob("metrics.*.jsonl"):
        number = path.name.removeprefix("metrics.").removesuffix(".jsonl")
        if number.isascii() and number.isdecimal():
            parts[int(number)] = path
    return [parts[number] for number in sorted(parts)]


def whole_lines(path: Path) -> Iterator[dict[str, object] | None]:
    """The JSON object in each line of a file that may still be written to, or was cut short.

    Yields None for a line that holds none. Blank lines are skipped.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for line in lines_of(file):
                yield line.value if isinstance(line.value, dict) else None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def read_settings(metrics_file: Path) -> Settings | None:
    """The settings of the run with these metrics; None where they are unknown."""
    try:
        with settings_file(metrics_file).open("rb") as file:
            text = file.read(MAX_SETTINGS_BYTES + 1)
        # Without secrets once more: something else may have written the file.
        nested = without_secrets(json.loads(text)) if len(text) <= MAX_SETTINGS_BYTES else None
        return (dict(_flat(nested)) or None) if isinstance(nested, Mapping) else None
    except (OSError, ValueError, RecursionError):
        return None


def _flat(nested: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """(dotted name, JSON) of each value. Raises ValueError where there are too many."""
    left = [("", nested)]
    count = 0
    while left:
        prefix, mapping = left.pop()
        for key, value in mapping.items():
            count += 1
            if count > MAX_SETTINGS:
                raise ValueError("too many settings")
            name = f"{prefix}{key[:200]}"
            if isinstance(value, Mapping):
                left.append((f"{name[:1000]}.", value))
            else:
                yield name, json.dumps(value, ensure_ascii=False)[:MAX_VALUE_CHARS]


def _name(metrics_file: Path) -> str:
    if metrics_file.name != METRICS:
        return metrics_file.stem
    folder = metrics_file.resolve().parent
    # .../ms_grpo/seed1 is named by both.
    is_bare = not folder.name.lower().removeprefix("seed").strip("0123456789-_=")
    return f"{folder.parent.name}/{folder.name}" if is_bare else folder.name
