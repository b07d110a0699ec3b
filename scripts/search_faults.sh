#!/usr/bin/env bash
# Trains with main_ppo on CPU while the retrieval server is killed, slow, answers rubbish and is
# overloaded; prints what client and server saw in each phase, and checks it.
#
#   bash scripts/search_faults.sh [pytest arguments]
#
# Knobs: FAULT_STEPS (training steps with each fault, and as many without one after it; default 4), VENV
# (default .venv), and those of scripts/setup_cpu.sh.
set -euo pipefail
# All that this starts ends with it, also when it is interrupted.
[ "${WHOLE_TREE:-}" = "$PPID" ] || exec "${PYTHON:-python3}" "$(dirname "${BASH_SOURCE[0]}")/whole_tree.py" \
    bash "${BASH_SOURCE[0]}" "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-$PWD/.venv}
export FAULT_STEPS=${FAULT_STEPS:-4}
bash scripts/setup_cpu.sh "$VENV"
"$VENV/bin/python" -m pytest tests/e2e/test_search_faults.py --capture=no -v "$@"
