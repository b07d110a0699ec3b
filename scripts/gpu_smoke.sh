#!/usr/bin/env bash
# What to run first on a GPU machine: every step is independent and says what it has seen, so that
# ten minutes teach the most. Prints a table at the end, and keeps the logs.
#
#   bash scripts/gpu_smoke.sh [OUT]         OUT defaults to outputs/gpu_smoke
#
# Knobs: PYTHON (default python3 of the environment that verl runs in: scripts/setup_gpu.sh),
# LIMIT_S (600, for each step).
set -uo pipefail
CALLED_FROM=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

OUT=${1:-outputs/gpu_smoke}
[[ $OUT = /* ]] || OUT=$CALLED_FROM/$OUT
PYTHON=${PYTHON:-python3}
LIMIT_S=${LIMIT_S:-600}
mkdir -p "$OUT"
rows=()
step() {
    local name=$1 started=$SECONDS verdict=ok
    shift
    printf '\n== %s\n' "$name"
    timeout "$LIMIT_S" "$@" >"$OUT/$name.log" 2>&1 || verdict="failed ($?)"
    tail -n 3 "$OUT/$name.log"
    rows+=("$(printf '%-12s %-12s %4d s   %s' "$name" "$verdict" $((SECONDS - started)) "$OUT/$name.log")")
}

step versions "$PYTHON" - <<'PY'
import importlib.metadata as m
import subprocess

print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout, end="")
for name in ("torch", "verl", "vllm", "megatron-core", "megatron-bridge", "transformer-engine", "flash-attn"):
    try:
        print(name, m.version(name))
    except m.PackageNotFoundError:
        print(name, "-")
PY
step doctor "$PYTHON" -m verl_msgrpo.cli doctor
# The estimator on CUDA tensors against the same on the CPU.
step estimator "$PYTHON" -m pytest -q -rs tests/estimator/test_advantages.py -k cuda
# The quickstart on the GPU, five steps: FSDP2 and vLLM, then Megatron and vLLM.
VENV=$("$PYTHON" -c 'import sys; print(sys.prefix)')
export VENV DEVICE=cuda STEPS=5
step fsdp2 env RUN_DIR="$OUT/fsdp2" bash examples/quickstart/run.sh
step megatron env BACKEND=megatron RUN_DIR="$OUT/megatron" bash examples/quickstart/run.sh

printf '\n%-12s %-12s %6s   %s\n' step result time log
printf '%s\n' "${rows[@]}"
