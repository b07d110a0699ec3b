#!/usr/bin/env bash
# Sets up the environment, then checks style and types and runs the tests, end-to-end ones too.
#
#   bash scripts/run_tests.sh [pytest arguments]
#
# Knobs: VENV (default .venv), and those of scripts/setup_cpu.sh.
set -euo pipefail
# All that this starts ends with it, also when it is interrupted.
[ "${WHOLE_TREE:-}" = "$PPID" ] || exec "${PYTHON:-python3}" "$(dirname "${BASH_SOURCE[0]}")/whole_tree.py" \
    bash "${BASH_SOURCE[0]}" "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-$PWD/.venv}
bash scripts/setup_cpu.sh "$VENV"
bash scripts/setup_megatron.sh "$VENV"
export PATH="$VENV/bin:$PATH"

# Without a browser the tests of the report's page are skipped, without bubblewrap those of one sandbox.
has_browser() { command -v chromium chromium-browser google-chrome >/dev/null; }
missing=()
has_browser || missing+=(chromium)
command -v bwrap >/dev/null || missing+=(bubblewrap)
if [ ${#missing[@]} -gt 0 ]; then
    echo "== system packages: ${missing[*]}"
    apt() { DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq -o Acquire::http::Timeout=20 "$@"; }
    { [ "$(id -u)" = 0 ] && apt update && apt install --yes --no-install-recommends "${missing[@]}"; } \
        >/dev/null 2>&1 || echo "apt-get cannot install them: their tests are skipped"
    has_browser || timeout 300 playwright install --only-shell chromium >/dev/null 2>&1 || true
fi

echo "== style"
ruff check .
ruff format --check .
echo "== types"
mypy
echo "== tests"
python -m pytest --durations=10 "$@"
echo "passed; longer proofs: bash scripts/full_tests.sh"
