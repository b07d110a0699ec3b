#!/usr/bin/env bash
# MS-GRPO or GRPO | mathematics, AIME 2024 | Qwen2.5-7B-Instruct | Megatron or FSDP2 | vLLM
#
#   bash examples/math_aime24/run_qwen2_5_7b_megatron.sh [Hydra overrides]
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

TASK=math_aime24
DATA_DIR=${DATA_DIR:-$HOME/data/aime24} # verl-msgrpo prepare aime24 --out DATA_DIR
REWARD_FN=${REWARD_FN:-$REPO/reward_fns/math_answer.py}
# Part of the reward for a well-formed answer. With 0, a reward of two values, MS-GRPO is GRPO times
# a factor that depends on the share of right answers.
FORMAT_BONUS=${FORMAT_BONUS:-0.1}

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
MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-1024}
if [ "$MODEL_KIND" = reasoning ]; then RESPONSE=8192; else RESPONSE=4096; fi
MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-$RESPONSE}

ACTOR_LR=${ACTOR_LR:-1e-6}
KL_LOSS_COEF=${KL_LOSS_COEF:-0.001}
SEED=${SEED:-0}

TOTAL_STEPS=${TOTAL_STEPS:-200}
TEST_FREQ=${TEST_FREQ:-25}
VAL_SAMPLES=${VAL_SAMPLES:--1} # all 30
VAL_N=${VAL_N:-16} # samples of each: mean@16
VAL_TEMPERATURE=${VAL_TEMPERATURE:-0.6}
VAL_TOP_P=${VAL_TOP_P:-0.95}
SAVE_FREQ=${SAVE_FREQ:-50}
LOGGER=${LOGGER:-[console,file]} # for example [console,file,wandb]; file: OUTPUT_DIR/metrics.jsonl
EXPERIMENT_NAME=${EXPERIMENT_NAME:-$(basename "$MODEL_PATH")_${BACKEND}_${ADV_ESTIMATOR}_seed${SEED}}
OUTPUT_DIR=${OUTPUT_DIR:-$PWD/outputs/math_aime24/$EXPERIMENT_NAME}
DRY_RUN=${DRY_RUN:-0}
#######################################################################

source "$REPO/examples/common/training.sh" # ENGINE, DATA, MODEL, ACTOR, ROLLOUT, REF, TRAINER

DATA+=("$(reward_setting math_answer format_bonus "$FORMAT_BONUS")")

launch "${ENGINE[@]}" "${DATA[@]}" "${MODEL[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${REF[@]}" \
    "${TRAINER[@]}" "$@"
