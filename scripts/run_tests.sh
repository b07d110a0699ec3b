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
bash scripts/setup_megatron.sh "$VENV"
export PATH="$VENV/bin:$PATH"

# The tests of `verl-msgrpo report` open its page in a browser; without one they are skipped.
if ! command -v chromium chromium-browser google-chrome >/dev/null; then
    echo "== browser"
    apt() { DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq -o Acquire::http::Timeout=20 "$@"; }
    { [ "$(id -u)" = 0 ] && apt update && apt install --yes --no-install-recommends chromium; } \
        >/dev/null 2>&1 ||
        timeout 300 playwright install --only-shell chromium >/dev/null 2>&1 ||
        echo "no Chromium can be installed: its tests are skipped"
fi

echo "== style"
ruff check .
ruff format --check .
echo "== types"
mypy
echo "== tests"
python -m pytest --durations=10 "$@"
echo "passed; longer proofs: bash scripts/full_tests.sh"
