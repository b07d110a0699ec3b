"""A run: verl's metrics by step, and where its settings and dumps stand."""

import dataclasses
import glob
import itertools
from collections.abc import Callable
from pathlib import Path

from verl_msgrpo.errors import UserError
from verl_msgrpo.report.settings import METRICS, Settings, read_settings
from verl_msgrpo.report.whole_lines import finite, whole_lines

Series = dict[int, float]  # step -> value; the steps ascend, the values are finite


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """Attributes:
    metrics_file: what verl's file logger wrote.
    name: of the folder, or of the file where that is not called metrics.jsonl.
    metrics: a series under each name.
    last_step: the last step with any metric.
    unread: lines without metrics in them.
    settings: None where they are not known.
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
            resumed, `metrics.1.jsonl`, `metrics.2.jsonl`, ... beside it are its earlier parts.
        wanted: says of a metric's name whether to keep it.

    Raises:
        UserError: there is no such run, or it has no metrics.
    """
    metrics_file = find_metrics(path)
    values: dict[str, Series] = {}
    unread = 0
    last_step = -1
    files = [*_earlier_parts(metrics_file), metrics_file]
    for row in itertools.chain.from_iterable(map(whole_lines, files)):
        step, data = (row.get("step"), row.get("data")) if row else (None, None)
        if type(step) is not int or step < 0 or not isinstance(data, dict):
            unread += 1
            continue
        last_step = max(last_step, step)
        for name, value in data.items():
            number = finite(value)
            if number is not None and wanted(name):
                values.setdefault(name, {})[step] = number
    if last_step < 0:
        raise UserError(f'{metrics_file}: no line of verl\'s file logger, {{"step": ..., "data"')
    return Run(
        metrics_file=metrics_file,
        name=_name(metrics_file),
        metrics={name: dict(sorted(series.items())) for name, series in values.items()},
        last_step=last_step,
        unread=unread,
        settings=read_settings(metrics_file),
    )


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
    """What the recipes moved away before verl began the file anew, in order."""
    parts: dict[int, Path] = {}
    for path in metrics_file.parent.glob(f"{glob.escape(metrics_file.stem)}.*.jsonl"):
        number = path.name.removeprefix(f"{metrics_file.stem}.").removesuffix(".jsonl")
        if number.isascii() and number.isdecimal():
            parts[int(number)] = path
    return [parts[number] for number in sorted(parts)]


def _name(metrics_file: Path) -> str:
    if metrics_file.name != METRICS:
        return metrics_file.stem
    folder = metrics_file.resolve().parent
    # .../ms_grpo/seed1 is named by both.
    is_bare = not folder.name.lower().removeprefix("seed").strip("0123456789-_=")
    return f"{folder.parent.name}/{folder.name}" if is_bare else folder.name
