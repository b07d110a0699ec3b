#!/usr/bin/env bash
# Compares GRPO, Dr. GRPO and MS-GRPO: many runs of the quickstart, one at a time, on the CPU.
#
#   bash examples/compare/run.sh
#
# Can be stopped and started again: a run whose CSV is in RESULTS is not repeated. While there is a
# file PAUSE in OUT, no further run is started. What is run, and in which order: plan.py.
set -euo pipefail
CALLED_FROM=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

########################### user-adjustable ###########################
STEPS=${STEPS:-15}
ONLY=${ONLY:-.}  # a regular expression: the names of the runs, for example '^graded-.*seed0'
VENV=${VENV:-$PWD/.venv}
OUT=${OUT:-$PWD/outputs/compare}                 # data, logs, and of each run what the report needs
RESULTS=${RESULTS:-$PWD/examples/compare/results} # a CSV for each run
QUICKSTART=${QUICKSTART:-$PWD/examples/quickstart/run.sh} # what a run calls
#######################################################################

for name in VENV OUT RESULTS QUICKSTART; do
    [[ ${!name} = /* ]] || printf -v "$name" '%s' "$CALLED_FROM/${!name}"
done
export VENV
bash scripts/setup_cpu.sh "$VENV"
exec "$VENV/bin/python" examples/compare/run_plan.py \
    --steps "$STEPS" --only "$ONLY" --out "$OUT" --results "$RESULTS" --quickstart "$QUICKSTART"
