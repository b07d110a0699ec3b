"""After training: a table of the held-out questions, before and after, and a learning curve.

    python examples/quickstart/summary.py RUN_DIR

Reads verl's metrics (`metrics.jsonl`) and rollout dumps (`rollouts/STEP.jsonl`) in RUN_DIR.
"""

import argparse
import json
from pathlib import Path

import matplotlib as mpl

Step = tuple[int, dict[str, float]]

SEARCH, NO_SEARCH = "quickstart/search", "quickstart/no_search"
TABLE = [
    ("accuracy with search", f"val-core/{SEARCH}/acc/mean@1"),
    ("accuracy without search", f"val-core/{NO_SEARCH}/acc/mean@1"),
    ("searches per question", f"val-aux/{SEARCH}/searches/mean@1"),
    ("bridge found", f"val-aux/{SEARCH}/found_bridge/mean@1"),
]


def read_metrics(path: Path) -> list[Step]:
    """What verl's file logger wrote: (step, metrics), a line each; a line cut short is left out."""
    steps = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        steps.append((entry["step"], entry["data"]))
    return steps


def series(steps: list[Step], key: str) -> list[tuple[int, float]]:
    """(step, value) of one metric wherever it was logged."""
    return [(step, data[key]) for step, data in steps if key in data]


def table(steps: list[Step]) -> str:
    """Held-out results at the first and the last validation."""
    lines = [f"{'held-out questions':<26}{'before':>8}{'after':>8}"]
    for label, key in TABLE:
        values = [value for _, value in series(steps, key)]
        shown = f"{values[0]:>8.2f}{values[-1]:>8.2f}" if values else f"{'-':>8}{'-':>8}"
        lines.append(f"{label:<26}{shown}")
    return "\n".join(lines)


def distinct_rewards(rollouts: Path) -> list[list[int]]:
    """For each step's dump, in order, the number of distinct rewards in each of its groups."""
    counts = []
    for path in sorted(rollouts.glob("*.jsonl"), key=lambda p: int(p.stem)):
        groups: dict[str, set[float]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            # verl's keys are {uid}_{session}_{index}, a group is a uid.
            groups.setdefault(entry["uid"].rsplit("_", 2)[0], set()).add(round(entry["score"], 6))
        counts.append([len(rewards) for rewards in groups.values()])
    return counts


def draw(steps: list[Step], path: Path) -> None:
    """Reward of the training rollouts, held-out accuracy, and searches per rollout, over steps."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(7, 6), layout="constrained")
    top.plot(*zip(*series(steps, "critic/score/mean"), strict=True), label="training reward")
    for label, key in TABLE[:2]:
        if points := series(steps, key):
            top.plot(*zip(*points, strict=True), "o--", label=f"held-out {label}")
    top.set(ylim=(0, 1), ylabel="reward, accuracy")
    top.legend()
    # verl counts the question, every observation and every turn of the policy.
    turns = series(steps, "num_turns/mean")
    bottom.plot([step for step, _ in turns], [(n - 2) / 2 for _, n in turns])
    bottom.set(xlabel="step", ylabel="searches per rollout")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run_dir", type=Path)
    run_dir = parser.parse_args().run_dir
    metrics = run_dir / "metrics.jsonl"
    steps = read_metrics(metrics)
    print(table(steps))
    groups = [count for step in distinct_rewards(run_dir / "rollouts") for count in step]
    if groups:
        share = sum(count >= 3 for count in groups) / len(groups)
        print(f"\ntraining groups with three or more distinct rewards: {share:.0%}")
    curve = run_dir / "learning_curve.png"
    if series(steps, "critic/score/mean"):
        draw(steps, curve)
        print(f"learning curve  {curve}")
    print(f"metrics         {metrics}")
    print(f"checkpoint      {run_dir / 'checkpoints'}")


if __name__ == "__main__":
    main()
