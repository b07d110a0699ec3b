"""The figures of a report: a metric over steps, the phases of a step, each a PNG for a phone."""

import dataclasses
import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.table import shown
from verl_msgrpo.report.curves import (
    MAX_PANELS,
    REWARD,
    SECTIONS,
    TIME,
    Panel,
    curve,
    phase_names,
    phase_seconds,
    series_of,
)
from verl_msgrpo.report.methods import Method
from verl_msgrpo.report.runs import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Okabe and Ito's colours, which those who see fewer can tell apart; the lines differ too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
SIZE_INCHES = (4.8, 3.0)  # a phone shows it at about three quarters
DPI = 130
FEW_POINTS = 12
LEGEND_COLUMNS = 3  # where it is below the axes


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
            says="mean seconds per step; validation (testing) is spread over all steps",
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


def plot_curves(title: str, methods: Sequence[tuple[str, Sequence[Series]]]) -> bytes:
    """A PNG: of each method the mean over its seeds, their range shaded, each seed a thin line.

    Args:
        title: of the figure.
        methods: (name, a series for each seed); a method without any keeps its colour unused.

    Raises:
        UserError: matplotlib is missing.
    """
    figure = empty_figure(*SIZE_INCHES)
    axes = figure.add_subplot()
    names, handles = [], []
    for number, (name, seeds) in enumerate(methods):
        if seeds:
            (handle,) = _draw(axes, seeds, number)
            names.append(name)
            handles.append(handle)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    axes.locator_params(axis="x", integer=True)
    _finish(axes, title, handles, names if len(methods) > 1 else [])
    return _png(figure)


def plot_phases(
    title: str, methods: Sequence[tuple[str, dict[str, float]]], phases: Sequence[str]
) -> bytes:
    """A PNG: a bar for each method, divided into the seconds of its phases.

    Raises:
        UserError: matplotlib is missing.
    """
    legend_inches = 0.2 * -(-len(phases) // LEGEND_COLUMNS)
    figure = empty_figure(SIZE_INCHES[0], 1.0 + 0.5 * len(methods) + legend_inches)
    from matplotlib import colormaps

    colours = colormaps["tab20"]
    axes = figure.add_subplot()
    left = [0.0] * len(methods)
    handles = []
    for number, phase in enumerate(phases):
        seconds = [values.get(phase, 0.0) for _, values in methods]
        colour = colours(number % colours.N)
        handles.append(axes.barh(range(len(methods)), seconds, left=left, color=colour))
        left = [before + more for before, more in zip(left, seconds, strict=True)]
    axes.set_yticks(range(len(methods)), [_label(n) for n, _ in methods], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel("seconds per step")
    _finish(axes, title, handles, phases, below=True)
    return _png(figure)


def _draw(axes: "Axes", seeds: Sequence[Series], number: int) -> list:
    colour = COLOURS[number % len(COLOURS)]
    line = LINES[number // len(COLOURS) % len(LINES)]
    together = curve(seeds)
    if len(seeds) > 1:
        for series in seeds:
            axes.plot(list(series), list(series.values()), color=colour, alpha=0.3, linewidth=0.7)
        axes.fill_between(
            together.steps, together.low, together.high, color=colour, alpha=0.2, linewidth=0
        )
    marker = "o" if len(together.steps) <= FEW_POINTS else ""
    return axes.plot(
        together.steps, together.mean, color=colour, linestyle=line, marker=marker, markersize=4
    )


def empty_figure(width: float, height: float) -> "Canvas":
    """A figure of so many inches that needs no display.

    Raises:
        UserError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("needs matplotlib: pip install 'verl-msgrpo[report]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _finish(
    axes: "Axes", title: str, handles: Sequence, names: Sequence[str], below: bool = False
) -> None:
    axes.set_title(_label(title), fontsize=11, parse_math=False)
    if names:
        # Set afterwards: matplotlib leaves out labels that begin with an underscore.
        labels = [str(n) for n in range(len(names))]
        if below:
            assert axes.figure is not None
            legend = axes.figure.legend(
                handles, labels, fontsize=8, ncols=LEGEND_COLUMNS, loc="outside lower center"
            )
        else:
            legend = axes.legend(handles, labels, fontsize=8)
        for text, name in zip(legend.get_texts(), names, strict=True):
            text.set_text(_label(name))
            text.set_parse_math(False)


def _png(figure: "Canvas") -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A name in a script that the font does not have is drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(file, dpi=DPI, format="png")
    return file.getvalue()


def _label(name: str) -> str:
    return shown(name).strip()
