#!/usr/bin/env bash
# MS-GRPO or GRPO | programming, LiveCodeBench | Qwen2.5-7B-Instruct | Megatron or FSDP2 | vLLM
#
#   bash examples/code_livecodebench/run_qwen2_5_7b_megatron.sh [Hydra overrides]
#   DRY_RUN=1 bash ...      prints the command, checks it, and starts nothing
#
# README.md says what has to be there before. Every setting is checked before Ray starts.
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

########################### user-adjustable ###########################
ADV_ESTIMATOR=${ADV_ESTIMATOR:-ms_grpo} # ms_grpo | grpo: everything else stays the same
BACKEND=${BACKEND:-megatron}            # megatron | fsdp (FSDP2)
# Or Llama-3.2-3B-Instruct, DeepSeek-R1-Distill-Qwen-1.5B, -7B: ../common/README.md
MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-7B-Instruct}
source "$REPO/examples/common/model_presets.sh" # MODEL_...: what the model family needs

TASK=code_livecodebench
DATA_DIR=${DATA_DIR:-$HOME/data/livecodebench} # verl-msgrpo prepare livecodebench --out DATA_DIR
REWARD_FN=${REWARD_FN:-$REPO/reward_fns/code_tests.py}
# True: the score is the share of tests passed. With False, a reward of two values, MS-GRPO is GRPO
# times a factor that depends on the share of right programs.
PARTIAL=${PARTIAL:-True}
TIMEOUT_S=${TIMEOUT_S:-10} # seconds that a program may take for all tests of its problem together

NNODES=${NNODES:-1}
NGPUS_PER_NODE=${NGPUS_PER_NODE:-8}
ACTOR_TP=${ACTOR_TP:-$MODEL_TP}
ACTOR_PP=${ACTOR_PP:-$MODEL_PP}
ACTOR_CP=${ACTOR_CP:-1} # with BACKEND=fsdp: Ulysses sequence parallelism
ROLLOUT_TP=${ROLLOUT_TP:-1}
ROLLOUT_GPU_MEM_UTIL=${ROLLOUT_GPU_MEM_UTIL:-0.6}
OFFLOAD=${OFFLOAD:-True} # weights and optimizer rest in host memory while vLLM generates
GPU=${GPU:-}             # h100, a100-80, ...: compare the memory with this card

ROLLOUT_N=${ROLLOUT_N:-8}
TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-128}
PPO_MINI_BATCH_SIZE=${PPO_MINI_BATCH_SIZE:-64}
PPO_MAX_TOKEN_LEN_PER_GPU=${PPO_MAX_TOKEN_LEN_PER_GPU:-16384}
MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-2048}
if [ "$MODEL_KIND" = reasoning ]; then RESPONSE=8192; else RESPONSE=4096; fi
MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-$RESPONSE}

ACTOR_LR=${ACTOR_LR:-1e-6}
KL_LOSS_COEF=${KL_LOSS_COEF:-0.001}
SEED=${SEED:-0}

TOTAL_STEPS=${TOTAL_STEPS:-200}
TEST_FREQ=${TEST_FREQ:-25}
VAL_SAMPLES=${VAL_SAMPLES:--1} # all
VAL_N=${VAL_N:-1}
if [ "$MODEL_KIND" = reasoning ]; then TEMPERATURE=0.6; else TEMPERATURE=0; fi
VAL_TEMPERATURE=${VAL_TEMPERATURE:-$TEMPERATURE}
VAL_TOP_P=${VAL_TOP_P:-1.0}
SAVE_FREQ=${SAVE_FREQ:-50}
LOGGER=${LOGGER:-[console,file]} # for example [console,file,wandb]; file: OUTPUT_DIR/metrics.jsonl
EXPERIMENT_NAME=${EXPERIMENT_NAME:-$(basename "$MODEL_PATH")_${BACKEND}_${ADV_ESTIMATOR}_seed${SEED}}
OUTPUT_DIR=${OUTPUT_DIR:-$PWD/outputs/code_livecodebench/$EXPERIMENT_NAME}
DRY_RUN=${DRY_RUN:-0}
#######################################################################

source "$REPO/examples/common/training.sh" # ENGINE, DATA, MODEL, ACTOR, ROLLOUT, REF, TRAINER

DATA+=(
    "$(reward_setting code_tests partial "$PARTIAL")"
    "$(reward_setting code_tests timeout_s "$TIMEOUT_S")"
    # verl does not hand its own setting on to a custom reward function.
    "$(reward_setting code_tests sandbox_fusion_url '${reward.sandbox_fusion.url}')"
)

launch "${ENGINE[@]}" "${DATA[@]}" "${MODEL[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${REF[@]}" \
    "${TRAINER[@]}" "$@"
