"""Checks the bars of the quickstart on finished runs, one folder a seed; exit code 1 on a miss.

python scripts/check_quickstart.py outputs/quickstart/ms_grpo-seed0 ...
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "quickstart"))
import summary

BEFORE_BELOW, AFTER_MEDIAN, AFTER_EACH, GRADED_SHARE = 0.5, 0.8, 0.7, 0.2
ACCURACY = "val-core/quickstart/search/acc/mean@1"


def held_out_accuracy(run: Path) -> tuple[float, float]:
    """At the first and the last validation."""
    entries = [json.loads(line)["data"] for line in (run / "metrics.jsonl").open()]
    found = [data[ACCURACY] for data in entries if ACCURACY in data]
    return found[0], found[-1]


def graded_share(run: Path) -> float:
    """Share of the training groups with three or more distinct rewards."""
    groups = [count for step in summary.distinct_rewards(run / "rollouts") for count in step]
    return sum(count >= 3 for count in groups) / len(groups)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    runs = parser.parse_args().runs
    before, after, graded = [], [], []
    print(f"{'run':<40}{'before':>8}{'after':>8}{'3+ rewards':>12}")
    for run in runs:
        first, last = held_out_accuracy(run)
        before.append(first)
        after.append(last)
        graded.append(graded_share(run))
        print(f"{run.name:<40}{first:>8.3f}{last:>8.3f}{graded[-1]:>12.0%}")
    bars = {
        f"accuracy before < {BEFORE_BELOW}": max(before) < BEFORE_BELOW,
        f"median accuracy after >= {AFTER_MEDIAN}": statistics.median(after) >= AFTER_MEDIAN,
        f"every accuracy after >= {AFTER_EACH}": min(after) >= AFTER_EACH,
        f"groups with three or more rewards >= {GRADED_SHARE:.0%}": min(graded) >= GRADED_SHARE,
    }
    for bar, met in bars.items():
        print(f"{'OK' if met else 'MISSED':<8}{bar}")
    return 0 if all(bars.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
