"""Figures of the bandit study."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from theory_figures import COLOURS, save

from verl_msgrpo.analysis.comparison import SAME_RATE, Row


def draw(rows: Sequence[Row], rate_rows: Sequence[Row], folder: Path) -> None:
    """Writes the curves over the learning rate, and the differences: rows as in the CSVs."""
    _rates(rate_rows, folder / "rates.png")
    _differences(rows, folder / "bandits.png")


def _rates(rows: Sequence[Row], path: Path) -> None:
    """One panel per kind, at its highest level."""
    highest = {row["kind"]: row["level"] for row in rows}
    figure, all_axes = plt.subplots(1, len(highest), figsize=(11, 2.9), sharey=True)
    for axes, (kind, level) in zip(all_axes, highest.items(), strict=True):
        for name, colour in COLOURS.items():
            problem = (kind, level, name)
            curve = [r for r in rows if (r["kind"], r["level"], r["method"]) == problem]
            rates, means = [r["rate"] for r in curve], [r["final"] for r in curve]
            axes.plot(rates, means, color=colour, label=name, linewidth=1.2)
        axes.set_xscale("log", base=2)
        axes.set_title(f"{kind}, level {level:g}", fontsize=9)
        axes.set_xlabel("learning rate")
    all_axes[0].set_ylabel("share of the possible\ngain after 50 steps")
    all_axes[0].legend(frameon=False, fontsize=7)
    save(figure, path)


def _differences(rows: Sequence[Row], path: Path) -> None:
    """Paired differences with intervals: at the own best rate, and at GRPO's."""
    panels = {
        "each at its own best rate, minus GRPO": ["Dr. GRPO", "MS-GRPO exact", "MS-GRPO paper"],
        "at GRPO's rate, minus GRPO at c times that rate": [
            "MS-GRPO exact" + SAME_RATE,
            "MS-GRPO paper" + SAME_RATE,
        ],
    }
    problems = list(dict.fromkeys((row["kind"], row["level"]) for row in rows))
    figure, all_axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True)
    corners = ("upper left", "lower right")
    for axes, corner, (title, names) in zip(all_axes, corners, panels.items(), strict=True):
        for shift, name in enumerate(names):
            chosen = [row for row in rows if row["method"] == name]
            heights = [row + 0.22 * (shift - 1) for row in range(len(problems))]
            values, low, high = (
                np.array([row[name] for row in chosen], dtype=float)
                for name in ("final_diff", "final_diff_low", "final_diff_high")
            )
            plain = name.removesuffix(SAME_RATE)
            style = {"fmt": "o", "markersize": 3, "linewidth": 1.2, "color": COLOURS[plain]}
            axes.errorbar(values, heights, xerr=[values - low, high - values], label=plain, **style)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.locator_params(axis="x", nbins=6)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("difference in the share of the possible gain")
        axes.legend(frameon=False, fontsize=7, loc=corner)
    labels = [kind if kind == "all" else f"{kind} {level:g}" for kind, level in problems]
    all_axes[0].set_yticks(range(len(problems)), labels, fontsize=8)
    all_axes[0].invert_yaxis()
    save(figure, path)
