#!/usr/bin/env bash
# Sets up the environment, then checks style and types and runs the tests, end-to-end ones too.
#
#   bash scripts/run_tests.sh [pytest arguments]
#
# Knobs: VENV (default .venv), and those of scripts/setup_cpu.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-$PWD/.venv}
bash scripts/setup_cpu.sh "$VENV"
export PATH="$VENV/bin:$PATH"

echo "== style"
ruff check .
ruff format --check .
echo "== types"
mypy
echo "== tests"
python -m pytest --durations=10 "$@"
echo "passed; longer proofs: bash scripts/full_tests.sh"
