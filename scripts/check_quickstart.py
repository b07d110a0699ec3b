"""Checks the bars of the quickstart on finished runs, one folder a seed; exit code 1 on a miss.

python scripts/check_quickstart.py outputs/quickstart/ms_grpo-seed0 ...
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "quickstart"))
import summary
from run_files import HELD_OUT

from verl_msgrpo.errors import UserError

BEFORE_BELOW, AFTER_MEDIAN, AFTER_EACH, GRADED_SHARE = 0.5, 0.8, 0.7, 0.2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    runs = parser.parse_args().runs
    before, after, graded = [], [], []
    print(f"{'run':<40}{'before':>8}{'after':>8}{'3+ rewards':>12}")
    for run in runs:
        try:
            accuracy = list(summary.read_metrics(run).get(HELD_OUT, {}).values())
            share = summary.graded_share(run)
        except UserError as error:
            print(f"check_quickstart.py: {error}", file=sys.stderr)
            return 2
        if len(accuracy) < 2 or share is None:
            print(f"check_quickstart.py: {run}: the run has not come to its end", file=sys.stderr)
            return 2
        before.append(accuracy[0])
        after.append(accuracy[-1])
        graded.append(share)
        print(f"{run.name:<40}{accuracy[0]:>8.3f}{accuracy[-1]:>8.3f}{share:>12.0%}")
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
