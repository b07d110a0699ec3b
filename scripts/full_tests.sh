#!/usr/bin/env bash
# The proofs that take too long for every change: the benchmarks with their bars, the published
# Monte Carlo table, the quickstart with three seeds and as a GRPO baseline, the search fault run.
# About an hour on two cores that do nothing else. The last results are in docs/measurements.md.
#
#   bash scripts/full_tests.sh
#
# Knobs: VENV (default .venv), SEEDS (default "0 1 2"), and those of scripts/setup_cpu.sh.
set -euo pipefail
# All that this starts ends with it, also when it is interrupted.
[ "${WHOLE_TREE:-}" = "$PPID" ] || exec "${PYTHON:-python3}" "$(dirname "${BASH_SOURCE[0]}")/whole_tree.py" \
    bash "${BASH_SOURCE[0]}" "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-$PWD/.venv}
SEEDS=${SEEDS:-0 1 2}
bash scripts/setup_cpu.sh "$VENV"
export VENV
failed=()
prove() {
    printf '\n===== %s\n' "$*"
    "$@" || failed+=("$*")
}

prove "$VENV/bin/python" scripts/variance_table.py
prove "$VENV/bin/python" scripts/bench_advantage.py
prove "$VENV/bin/python" scripts/bench_search.py
prove "$VENV/bin/python" scripts/bench_rewards.py
for seed in $SEEDS; do
    prove env SEED="$seed" bash examples/quickstart/run.sh
done
prove env SEED="${SEEDS%% *}" ADV_ESTIMATOR=grpo bash examples/quickstart/run.sh
prove "$VENV/bin/python" scripts/check_quickstart.py $(printf 'outputs/quickstart/ms_grpo-seed%s ' $SEEDS)
prove bash scripts/search_faults.sh

printf '\n%d proof(s) failed\n' "${#failed[@]}"
printf '  %s\n' "${failed[@]}"
[ "${#failed[@]}" -eq 0 ]
