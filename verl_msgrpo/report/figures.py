"""Every figure of a report, drawn."""

import dataclasses
import re
from collections.abc import Sequence

from verl_msgrpo.report.curves import curve
from verl_msgrpo.report.methods import Method
from verl_msgrpo.report.panels import MAX_PANELS, REWARD, SECTIONS, TIME, Panel, series_of
from verl_msgrpo.report.phases import phase_names, phase_seconds
from verl_msgrpo.report.plot import plot_curves, plot_phases


@dataclasses.dataclass(frozen=True, eq=False)
class Figure:
    """Attributes:
    name: unique, good as a file's name.
    title, says: what it shows.
    metric: verl's name for it.
    numbers: its last values in words.
    missing: methods that do not have it.
    png: the picture.
    """

    name: str
    title: str
    says: str
    metric: str
    numbers: str
    missing: list[str]
    png: bytes


@dataclasses.dataclass(frozen=True)
class Constant:
    """A metric with one value at every step of every run that has it; see Figure."""

    title: str
    says: str
    metric: str
    value: float


@dataclasses.dataclass(frozen=True, eq=False)
class Section:
    """Figures under a heading, and what needs none; `left_out` more are not drawn."""

    heading: str
    figures: list[Figure]
    constants: list[Constant]
    left_out: int


def sections(methods: Sequence[Method], panels: Sequence[Panel]) -> list[Section]:
    """The sections that have figures."""
    found = []
    names: set[str] = set()
    for heading in SECTIONS:
        constants: list[Constant] = []
        own: list[Panel] = []
        for panel in (panel for panel in panels if panel.section == heading):
            value = None if heading == REWARD else _constant(methods, panel.metric)
            if value is None:
                own.append(panel)
            else:
                constants.append(Constant(panel.title, panel.says, panel.metric, value))
        drawn = [_figure(methods, panel, names) for panel in own[:MAX_PANELS]]
        if heading == TIME:
            drawn = [*_phases(methods), *drawn]
        if drawn or constants:
            found.append(Section(heading, drawn, constants, max(len(own) - MAX_PANELS, 0)))
    return found


def _constant(methods: Sequence[Method], metric: str) -> float | None:
    """The only value of a metric that has several; None where it varies, or has one."""
    series = [run for method in methods for run in series_of(method, metric)]
    values = {value for run in series for value in run.values()}
    return values.pop() if len(values) == 1 and max(map(len, series)) > 1 else None


def _figure(methods: Sequence[Method], panel: Panel, names: set[str]) -> Figure:
    series = [(method.name, series_of(method, panel.metric)) for method in methods]
    ends = [(name, curve(seeds)) for name, seeds in series if seeds]
    numbers = [
        f"{name} {last.mean[-1]:.4g} at step {last.steps[-1]}"
        for name, last in ends
        if len(last.steps)
    ]
    return Figure(
        name=_unique(panel.metric, names),
        title=panel.title,
        says=panel.says,
        metric=panel.metric,
        numbers=", ".join(numbers),
        missing=[name for name, seeds in series if not seeds],
        png=plot_curves(panel.title, series),
    )


def _phases(methods: Sequence[Method]) -> list[Figure]:
    seconds = [(method.name, phase_seconds(method)) for method in methods]
    phases = phase_names([values for _, values in seconds])
    if not phases:
        return []
    title = "Time per phase"
    numbers = [
        f"{name}: " + ", ".join(f"{phase} {value:.3g} s" for phase, value in values.items())
        for name, values in seconds
        if values
    ]
    return [
        Figure(
            name="phases",
            title=title,
            says="mean seconds a step; validation (testing) spread over all steps",
            metric="timing_s/*",
            numbers="; ".join(numbers),
            missing=[name for name, values in seconds if not values],
            png=plot_phases(title, seconds, phases),
        )
    ]


def _unique(metric: str, names: set[str]) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", metric.lower()).strip("-")[:80] or "metric"
    name, number = stem, 1
    while name in names:
        number += 1
        name = f"{stem}-{number}"
    names.add(name)
    return name
