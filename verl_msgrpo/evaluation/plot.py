"""Summaries and comparisons as a picture."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.compare import Difference
from verl_msgrpo.evaluation.quantities import Estimate, SourceSummary
from verl_msgrpo.evaluation.table import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AT_K = re.compile(r"(pass|maj)@(\d+)")
_RESULT = re.compile(r"(avg|pass|maj)@\w+")


def plot_summaries(summaries: Sequence[SourceSummary], path: Path) -> None:
    """pass@k and maj@k over k, a colour for each data_source.

    Raises:
        UserError: matplotlib is missing, or the file cannot be written.
    """
    figure = _figure(height=5)
    axes = figure.add_subplot()
    for number, r in enumerate(summaries):
        for kind, line in (("pass", "o-"), ("maj", "s--")):
            found = [(int(m[2]), e) for e in r.estimates if (m := _AT_K.fullmatch(e.quantity))]
            points = [(k, e) for k, e in found if e.quantity.startswith(kind)]
            if points:
                axes.errorbar(
                    [k for k, _ in points],
                    [e.value for _, e in points],
                    yerr=_bars([e.value for _, e in points], [e for _, e in points]),
                    fmt=line,
                    capsize=3,
                    color=f"C{number % 10}",
                    label=_label(f"{r.source} {kind}@k"),
                )
    ks = sorted(
        {int(m[2]) for r in summaries for e in r.estimates if (m := _AT_K.fullmatch(e.quantity))}
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    axes.set(xlabel="k", ylabel="share of prompts, 95 % interval", ylim=(-0.02, 1.02))
    axes.legend()
    _save(figure, path)


def plot_differences(differences: Sequence[Difference], path: Path) -> None:
    """The differences of avg, pass@k and maj@k with their intervals, below each other.

    Raises:
        UserError: matplotlib is missing, or the file cannot be written.
    """
    chosen = [d for d in differences if _RESULT.fullmatch(d.quantity)]
    figure = _figure(height=1.5 + 0.3 * len(chosen))
    axes = figure.add_subplot()
    values = [d.difference for d in chosen]
    rows = np.arange(len(chosen))
    axes.errorbar(values, rows, xerr=_bars(values, chosen), fmt="o", capsize=3)
    axes.axvline(0.0, color="grey", linewidth=1)
    axes.set_yticks(rows, [_label(f"{d.source} {d.quantity}") for d in chosen])
    axes.invert_yaxis()
    axes.set_xlabel("B - A, 95 % interval")
    _save(figure, path)


def _figure(height: float) -> "Figure":
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("--plot needs matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(7, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: "Figure", path: Path) -> None:
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:  # ValueError: a format that matplotlib does not know
        raise UserError(f"{path}: cannot be written ({str(error)[:200]})") from None


def _bars(values: Sequence[float], estimates: Sequence[Estimate | Difference]) -> np.ndarray:
    """(2, n) lengths of the error bars; none where there is no interval."""
    ends = np.array(
        [(value - e.low, e.high - value) for value, e in zip(values, estimates, strict=True)]
    )
    return np.maximum(np.nan_to_num(ends), 0.0).T


def _label(name: str) -> str:
    return shown(name).strip().replace("$", r"\$")
