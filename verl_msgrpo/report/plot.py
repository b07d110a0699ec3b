"""A metric, or the phases of a step, as a PNG that can be read on a phone."""

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from verl_msgrpo.evaluation.table import shown
from verl_msgrpo.report.curves import curve
from verl_msgrpo.report.extra import from_extra
from verl_msgrpo.report.runs import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which those who see fewer can tell apart; the lines differ too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
SIZE_INCHES = (4.8, 3.0)  # a phone shows it at about three quarters
DPI = 130
FEW_POINTS = 12
LEGEND_COLUMNS = 3  # where it stands below the axes


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
    colours = from_extra("matplotlib").colormaps["tab20"].colors
    legend_inches = 0.2 * -(-len(phases) // LEGEND_COLUMNS)
    figure = empty_figure(SIZE_INCHES[0], 1.0 + 0.5 * len(methods) + legend_inches)
    axes = figure.add_subplot()
    left = [0.0] * len(methods)
    handles = []
    for number, phase in enumerate(phases):
        seconds = [values.get(phase, 0.0) for _, values in methods]
        colour = colours[number % len(colours)]
        handles.append(axes.barh(range(len(methods)), seconds, left=left, color=colour))
        left = [before + more for before, more in zip(left, seconds, strict=True)]
    axes.set_yticks(range(len(methods)), [_label(n) for n, _ in methods], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel("seconds a step")
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


def empty_figure(width: float, height: float) -> "Figure":
    """A figure of so many inches that needs no display.

    Raises:
        UserError: matplotlib is missing.
    """
    agg = from_extra("matplotlib.backends.backend_agg")
    size = (width, height)
    figure: Figure = from_extra("matplotlib.figure").Figure(figsize=size, layout="constrained")
    agg.FigureCanvasAgg(figure)
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


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A name in a script that the font does not have is drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(file, dpi=DPI, format="png")
    return file.getvalue()


def _label(name: str) -> str:
    return shown(name).strip()
