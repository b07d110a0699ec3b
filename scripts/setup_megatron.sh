#!/usr/bin/env bash
# Adds Megatron, for the tests of tests/megatron, to an environment made by scripts/setup_cpu.sh.
#
#   bash scripts/setup_megatron.sh [VENV]        VENV defaults to .venv in the repository
#
# The packages go to VENV/megatron, not to site-packages: verl uses Megatron wherever it finds it,
# and nothing but those tests is to find it. Does nothing when they are there, from the same list.
#
# --no-deps: what they need on the CPU is in the environment already; the rest of what they ask for
# (Transformer Engine, ModelOpt, flashinfer, ...) is made for GPUs. Both ask for Python 3.12; their
# Python files run on 3.11 too, with `typing.override`, which the tests supply. The one compiled file
# (helpers for data sets of pre-training) is for 3.12 and never imported.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${1:-$PWD/.venv}
LIST=scripts/requirements-megatron.txt
TARGET=$VENV/megatron
STAMP=$TARGET/.list

fail() { printf 'setup_megatron.sh: %s\n' "$*" >&2; exit 2; }
[ -x "$VENV/bin/python" ] || fail "no environment in $VENV: bash scripts/setup_cpu.sh $VENV"

want=$(sha256sum "$LIST" | cut -c1-16)
if [ "$(cat "$STAMP" 2>/dev/null)" = "$want" ]; then
    echo "Megatron: $TARGET (ready)"
    exit 0
fi
rm -rf "$TARGET"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
    --only-binary=:all: --python-version 3.12 --ignore-requires-python \
    --target "$TARGET" -r "$LIST" || fail "pip could not install $LIST"
# Compiled at once, as in setup_cpu.sh.
"$VENV/bin/python" -m compileall -q "$TARGET"
echo "$want" >"$STAMP"
echo "Megatron: $TARGET ($(grep '==' "$LIST" | tr '\n' ' '))"
