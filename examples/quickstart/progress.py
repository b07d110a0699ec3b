"""Run a training command: its output goes to a log file, the console gets one line a step.

python progress.py --run-dir DIR -- python -m verl.trainer.main_ppo ...

In DIR: `train.log` (written here), `metrics.jsonl` (verl's file logger) and `rollouts/STEP.jsonl`
(`trainer.rollout_data_dir`).
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from run_files import METRICS, REWARD, TURNS, dump_of, searches, training_accuracy

POLL_S = 0.5
HEARTBEAT_S = 15
LOG_TAIL_LINES = 30


def step_line(step: int, data: dict[str, float], accuracy: float | None) -> str | None:
    """One short line for a step's metrics; None where there is nothing to show."""
    parts = [f"step {step:>3}"]
    if REWARD in data:
        parts.append(f"reward {data[REWARD]:.2f}")
        parts.append("accuracy    -" if accuracy is None else f"accuracy {accuracy:.2f}")
        parts.append(f"searches {searches(data.get(TURNS, 2.0)):.2f}")
        parts.append(f"{data.get('timing_s/step', 0.0):.1f} s")
    held_out = {
        key.split("/")[2]: value
        for key, value in data.items()
        if key.startswith("val-core/quickstart/") and "/acc/mean@" in key
    }
    if held_out:
        shown = ", ".join(f"{name} {value:.2f}" for name, value in sorted(held_out.items()))
        parts.append(f"held-out accuracy: {shown}")
    return "  ".join(parts) if len(parts) > 1 else None


def follow(command: list[str], run_dir: Path) -> int:
    """Runs `command` to its end and returns its exit code."""
    metrics = run_dir / METRICS
    started = shown = time.monotonic()
    read = 0
    with (run_dir / "train.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        # The trainer ends Ray and its workers itself, when it is asked to.
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        try:
            while True:
                ended = process.poll() is not None
                lines = metrics.read_bytes().split(b"\n")[:-1] if metrics.exists() else []
                for line in lines[read:]:
                    step, data = json.loads(line).values()
                    accuracy = training_accuracy(dump_of(run_dir, step))
                    if text := step_line(step, data, accuracy):
                        print(text, flush=True)
                        shown = time.monotonic()
                read = len(lines)
                if ended:
                    return process.returncode
                if time.monotonic() - shown > HEARTBEAT_S:
                    shown = time.monotonic()
                    doing = "training" if read else "starting Ray, verl and vLLM"
                    print(f"  ... {doing}, {shown - started:.0f} s", flush=True)
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            process.wait()
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    log = args.run_dir / "train.log"
    print(f"log: {log}")
    code = follow([part for part in args.command if part != "--"], args.run_dir)
    if code:
        tail = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        print("\n".join(tail), file=sys.stderr)
        print(f"\ntraining failed (exit code {code}); all of its output: {log}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
