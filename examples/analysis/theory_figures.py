"""Figures of the theory."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from theory_numbers import Curves, TaylorErrors, TheoryNumbers

COLOURS = {
    "GRPO": "#777777",
    "Dr. GRPO": "#cc8800",
    "MS-GRPO exact": "#1f5fbf",
    "MS-GRPO paper": "#3aa5a0",
}


def draw(numbers: TheoryNumbers, folder: Path) -> None:
    """Writes one PNG per idea."""
    _one_group(numbers["one_group"], numbers["outlier"], folder / "one_group.png")
    _rescaling(numbers["rescaling"], folder / "rescaling.png")
    _taylor(numbers["taylor"], folder / "taylor.png")
    _design(numbers["design"], folder / "design.png")


def save(figure: plt.Figure, path: Path, dpi: int = 90) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=dpi, metadata={"Software": None}, pil_kwargs={"optimize": True})
    plt.close(figure)


def _one_group(group: Curves, outlier: Curves, path: Path) -> None:
    """The README's first figure: two panels that say what they show."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
    places = range(len(group["rewards"]))
    for shift, name in ((-0.2, "GRPO"), (0.2, "MS-GRPO exact")):
        bars = [place + shift for place in places]
        left.bar(bars, group[name], width=0.38, color=COLOURS[name], label=name)
    left.axhline(0, color="black", linewidth=0.8)
    left.set_xticks(places, [f"{reward:g}" for reward in group["rewards"]])
    left.set_xlabel("rewards of the eight responses of a group")
    left.set_ylabel("advantage")
    left.set_title(
        "0.2 is better than four of the other seven:\nGRPO punishes it, MS-GRPO does not",
        fontsize=10,
    )
    for name in ("GRPO", "MS-GRPO exact"):
        right.plot(outlier["eighth"], outlier[name], color=COLOURS[name], linewidth=2, label=name)
    right.set_xscale("log")
    right.set_ylim(0, None)
    right.set_xlabel("reward of the eighth response")
    right.set_ylabel("advantage of 1 minus that of 0")
    right.set_title(
        "As the eighth reward grows, GRPO no longer tells\nthe other seven (from 0 to 1) apart",
        fontsize=10,
    )
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path, dpi=160)


def _rescaling(tables: Curves, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.4))
    for name, factors in tables.items():
        size = len(factors) + 1
        shares = [right / size for right in range(1, size)]
        style = "--" if "scales" in name else "-"
        axes.plot(shares, factors, style, marker="." if size < 20 else None, label=name)
    axes.set_xlabel("share of right responses in the group")
    axes.set_ylabel("c = MS-GRPO / GRPO")
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def _taylor(tables: dict[str, TaylorErrors], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.6))
    markers = dict(zip(tables, "osD^", strict=True))
    colours = ("#777777", "#3aa5a0", "#bf3f3f")
    for name, table in tables.items():
        for order, colour in enumerate(colours):
            v = [row["V"] for row in table["by_scale"]]
            error = [row["errors"][order] for row in table["by_scale"]]
            axes.plot(v, error, markers[name], color=colour, markersize=5)
    for order, colour in enumerate(colours):
        axes.plot([], [], "-", color=colour, label=f"order {order}")
    for name, marker in markers.items():
        axes.plot([], [], marker, color="black", label=name)
    axes.axhline(1, color="black", linewidth=0.6, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("V, heterogeneity of the subgroups (scale 7 on the left, pairs on the right)")
    axes.set_ylabel("error / size of the advantage")
    axes.legend(frameon=False, fontsize=7, ncols=2)
    save(figure, path)


def _design(tables: dict[str, list[dict[str, float]]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.4))
    rows = tables["normal"]
    for num_scales in sorted({row["M"] for row in rows}):
        chosen = [row for row in rows if row["M"] == num_scales and row["noise"] > 1e-9]
        ks, noise = [row["K"] for row in chosen], [row["noise"] for row in chosen]
        axes.plot(ks, noise, marker="o", label=f"M = {num_scales}")
    axes.set_xscale("log", base=2)
    axes.set_xticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
    axes.set_ylim(0, None)
    axes.set_xlabel("K, subgroups per scale")
    axes.set_ylabel("noise / size of the advantage")
    axes.legend(frameon=False)
    save(figure, path)
