"""Figures of the comparison."""

from collections.abc import Sequence
from pathlib import Path

from collect import ACCURACY, CORRECTION
from plan import BASELINE, EXACT, METHODS, REWARDS
from quantities import FINAL, MEAN, Quantity, Results, by_seed, difference, mean_of, smoothed

from verl_msgrpo.report.figures import COLOURS, DPI, empty_figure, plot_curves
from verl_msgrpo.report.runs import Series


def draw(results: Results, folder: Path) -> None:
    """Writes the PNGs.

    Raises:
        UserError: matplotlib is missing.
    """
    for reward in REWARDS:
        curves = [
            (
                method.label,
                [smoothed(series) for series in _series(results, reward, name, ACCURACY)],
            )
            for name, method in METHODS.items()
        ]
        if any(seeds for _, seeds in curves):
            png = plot_curves(f"{reward}: training accuracy, mean of 3 steps", curves)
            (folder / f"{reward}_accuracy.png").write_bytes(png)
    corrections = [(reward, _series(results, reward, EXACT, CORRECTION)) for reward in REWARDS]
    if any(seeds for _, seeds in corrections):
        png = plot_curves("Share of the advantage that is no rescaled GRPO", corrections)
        (folder / "correction.png").write_bytes(png)
    _differences(results, folder / "differences.png")
    _heterogeneity(results, folder / "heterogeneity.png")


def _series(results: Results, reward: str, method: str, column: str) -> list[Series]:
    return [
        columns[column]
        for run, columns in results.items()
        if (run.reward, run.method) == (reward, method) and column in columns
    ]


def _differences(results: Results, path: Path) -> None:
    """Each method minus GRPO, with intervals, a panel for each quantity."""
    figure = empty_figure(8.0, 3.0)
    all_axes = figure.subplots(1, 2, sharey=True)
    names = [name for name in METHODS if name != BASELINE]
    rows = [(reward, name) for reward in REWARDS for name in names]
    for axes, quantity in zip(all_axes, (FINAL, MEAN), strict=True):
        for height, (reward, name) in enumerate(rows):
            change = difference(results, reward, name, BASELINE, quantity)
            if change is not None:
                colour = COLOURS[list(METHODS).index(name)]
                sides = [[change.value - change.low], [change.high - change.value]]
                axes.errorbar(change.value, height, xerr=sides, fmt="o", color=colour, markersize=4)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_title(f"{quantity.name}\nminus GRPO", fontsize=9)
    labels = [f"{reward}: {METHODS[name].label}" for reward, name in rows]
    all_axes[0].set_yticks(range(len(rows)), labels, fontsize=8)
    all_axes[0].invert_yaxis()
    figure.savefig(path, dpi=DPI)


def _heterogeneity(results: Results, path: Path) -> None:
    """A point for each seed: how much was no rescaled GRPO, and what came of it."""
    figure = empty_figure(8.0, 3.0)
    for axes, quantity in zip(figure.subplots(1, 2), (FINAL, MEAN), strict=True):
        for number, reward in enumerate(REWARDS):
            points = _points(results, reward, quantity)
            style = {"color": COLOURS[number], "marker": "os"[number], "label": reward}
            axes.scatter([x for x, _ in points], [y for _, y in points], s=20, **style)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xlabel("mean correction of the run")
        axes.set_title(f"{quantity.name}\nMS-GRPO exact minus GRPO, each seed", fontsize=9)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=DPI)


def _points(results: Results, reward: str, quantity: Quantity) -> Sequence[tuple[float, float]]:
    grpo = by_seed(results, reward, BASELINE, quantity)
    ours = by_seed(results, reward, EXACT, quantity)
    return [
        (mean_of(columns, CORRECTION), ours[str(run.seed)] - grpo[str(run.seed)])
        for run, columns in results.items()
        if (run.reward, run.method) == (reward, EXACT) and str(run.seed) in grpo
    ]
