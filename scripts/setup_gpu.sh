#!/usr/bin/env bash
# Sets up a virtual environment for NVIDIA GPUs: verl with its own pins of torch and vLLM, Megatron
# where asked for, and this package.
#
#   bash scripts/setup_gpu.sh [VENV]        VENV defaults to .venv-gpu in the repository
#
# Knobs: PYTHON (default python3.12, which Megatron-Bridge needs), BACKEND=fsdp|megatron (megatron
# has both), DRY_RUN=1 prints the commands. verl's published image is the shorter way to Megatron:
# see scripts/Dockerfile. Written from verl's metadata; not yet run on a GPU machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${1:-$PWD/.venv-gpu}
PYTHON=${PYTHON:-python3.12}
BACKEND=${BACKEND:-megatron}
VERL=verl==0.9.1

fail() { printf 'setup_gpu.sh: %s\n' "$*" >&2; exit 2; }
run() {
    printf '+ %s\n' "$*"
    [ "${DRY_RUN:-0}" = 1 ] || "$@" || fail "failed: $*"
}

[[ $BACKEND =~ ^(fsdp|megatron)$ ]] || fail "BACKEND=$BACKEND: fsdp or megatron"
if [ "${DRY_RUN:-0}" != 1 ]; then
    command -v nvidia-smi >/dev/null || fail "no nvidia-smi: this machine has no NVIDIA driver; without a GPU: scripts/setup_cpu.sh"
    command -v "$PYTHON" >/dev/null || fail "no $PYTHON; name one: PYTHON=/path/to/python3.12"
fi

run "$PYTHON" -m venv "$VENV"
PIP=("$VENV/bin/python" -m pip install --disable-pip-version-check)
# verl[vllm] pins torch 2.11.0 (CUDA 13) and vLLM 0.24.0.
run "${PIP[@]}" "$VERL" "verl[vllm]"
# These build against the torch that is installed, hence no isolation.
run "${PIP[@]}" packaging ninja psutil wheel setuptools
run "${PIP[@]}" --no-build-isolation flash-attn==2.8.3
if [ "$BACKEND" = megatron ]; then
    # Not verl[megatron]: on PyPI its `apex` is another project, and Megatron runs without NVIDIA's.
    run "${PIP[@]}" --no-build-isolation "transformer-engine[pytorch]"
    run "${PIP[@]}" megatron-core "megatron-bridge>=0.5.1,<0.6"
fi
run "${PIP[@]}" -e ".[search,rewards]"
run "$VENV/bin/verl-msgrpo" doctor
