#!/usr/bin/env bash
# MS-GRPO or GRPO | HotpotQA with a search tool | Qwen2.5-7B-Instruct | Megatron or FSDP2 | vLLM
#
#   bash examples/search_hotpotqa/run_qwen2_5_7b_megatron.sh [Hydra overrides]
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

TASK=search_hotpotqa
DATA_DIR=${DATA_DIR:-$HOME/data/hotpotqa} # verl-msgrpo prepare hotpotqa --out DATA_DIR
REWARD_FN=${REWARD_FN:-$REPO/reward_fns/search_qa.py}
# f1 gives partial credit. With em, a reward of two values, MS-GRPO is GRPO times a factor.
REWARD_METRIC=${REWARD_METRIC:-f1}
URL=${RETRIEVAL_SERVICE_URL:-http://127.0.0.1:8000/retrieve}
TOOL_CONFIG=${TOOL_CONFIG:-$REPO/verl_msgrpo/search/config/search_tool.yaml}
# The rows name their agent loop, and win: verl-msgrpo prepare hotpotqa --agent-loop AGENT
AGENT=${AGENT:-$MODEL_AGENT} # search_tool_agent | search_r1_agent

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
TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-256}
PPO_MINI_BATCH_SIZE=${PPO_MINI_BATCH_SIZE:-128}
PPO_MAX_TOKEN_LEN_PER_GPU=${PPO_MAX_TOKEN_LEN_PER_GPU:-16384}
MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-1024}
if [ "$MODEL_KIND" = reasoning ]; then RESPONSE=8192; else RESPONSE=4096; fi
MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-$RESPONSE} # observations included, up to 512 tokens each
MAX_ASSISTANT_TURNS=${MAX_ASSISTANT_TURNS:-5}         # four with a search, the last one answers

ACTOR_LR=${ACTOR_LR:-1e-6}
KL_LOSS_COEF=${KL_LOSS_COEF:-0.001}
SEED=${SEED:-0}

TOTAL_STEPS=${TOTAL_STEPS:-300}
TEST_FREQ=${TEST_FREQ:-25}
VAL_SAMPLES=${VAL_SAMPLES:-500} # of the 7405 validation questions; -1 for all
VAL_N=${VAL_N:-1}
if [ "$MODEL_KIND" = reasoning ]; then TEMPERATURE=0.6; else TEMPERATURE=0; fi
VAL_TEMPERATURE=${VAL_TEMPERATURE:-$TEMPERATURE}
VAL_TOP_P=${VAL_TOP_P:-1.0}
SAVE_FREQ=${SAVE_FREQ:-50}
LOGGER=${LOGGER:-[console,file]} # for example [console,file,wandb]; file: OUTPUT_DIR/metrics.jsonl
EXPERIMENT_NAME=${EXPERIMENT_NAME:-$(basename "$MODEL_PATH")_${BACKEND}_${ADV_ESTIMATOR}_seed${SEED}}
OUTPUT_DIR=${OUTPUT_DIR:-$PWD/outputs/search_hotpotqa/$EXPERIMENT_NAME}
DRY_RUN=${DRY_RUN:-0}
#######################################################################

source "$REPO/examples/common/training.sh" # ENGINE, DATA, MODEL, ACTOR, ROLLOUT, REF, TRAINER

DATA+=("$(reward_setting search_qa metric "$REWARD_METRIC")")
ROLLOUT+=(
    # A row's agent_name wins; without this a row that has none would never search.
    actor_rollout_ref.rollout.agent.default_agent_loop="$AGENT"
    actor_rollout_ref.rollout.multi_turn.enable=True
    actor_rollout_ref.rollout.multi_turn.format=hermes
    actor_rollout_ref.rollout.multi_turn.tool_config_path="$(quoted "$TOOL_CONFIG")"
    actor_rollout_ref.rollout.multi_turn.max_assistant_turns="$MAX_ASSISTANT_TURNS"
    # Ray's workers, on whatever node, read the address from their environment.
    +ray_kwargs.ray_init.runtime_env.env_vars.RETRIEVAL_SERVICE_URL="$(quoted "$URL")"
)

launch "${ENGINE[@]}" "${DATA[@]}" "${MODEL[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${REF[@]}" \
    "${TRAINER[@]}" "$@"
