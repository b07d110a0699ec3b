#!/usr/bin/env bash
# MS-GRPO or GRPO | Qwen2.5-7B-Instruct with a search tool on HotpotQA | Megatron or FSDP2 | vLLM
#
#   bash examples/search_hotpotqa/run_qwen2_5_7b_megatron.sh [Hydra overrides]
#   DRY_RUN=1 bash ...      prints the command, one argument a line, and starts nothing
#
# README.md says what has to be there before. The knobs are checked against each other here; Hydra
# overrides come after them, unchecked.
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

########################### user-adjustable ###########################
ADV_ESTIMATOR=${ADV_ESTIMATOR:-ms_grpo} # ms_grpo | grpo: everything else stays the same
BACKEND=${BACKEND:-megatron}            # megatron | fsdp (FSDP2)

MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-7B-Instruct}
DATA_DIR=${DATA_DIR:-$HOME/data/hotpotqa} # of verl-msgrpo prepare hotpotqa
REWARD_FN=${REWARD_FN:-$REPO/reward_fns/search_qa.py}
# f1 gives partial credit. With em, a reward of two values, MS-GRPO is GRPO times a factor.
REWARD_METRIC=${REWARD_METRIC:-f1}
RETRIEVAL_SERVICE_URL=${RETRIEVAL_SERVICE_URL:-http://127.0.0.1:8000/retrieve}
TOOL_CONFIG=${TOOL_CONFIG:-$REPO/verl_msgrpo/search/config/search_tool.yaml}

NNODES=${NNODES:-1}
NGPUS_PER_NODE=${NGPUS_PER_NODE:-8}
# Qwen2.5-7B has 28 layers, 28 heads and 4 key-value heads: TP 1, 2 or 4; PP 1, 2, 4, 7 or 14.
if [ "$BACKEND" = fsdp ]; then MEGATRON_TP=1; else MEGATRON_TP=4; fi
ACTOR_TP=${ACTOR_TP:-$MEGATRON_TP}
ACTOR_PP=${ACTOR_PP:-1}
ACTOR_CP=${ACTOR_CP:-1} # with BACKEND=fsdp: Ulysses sequence parallelism
ROLLOUT_TP=${ROLLOUT_TP:-1}
ROLLOUT_GPU_MEM_UTIL=${ROLLOUT_GPU_MEM_UTIL:-0.6}
OFFLOAD=${OFFLOAD:-True} # weights and optimizer rest in host memory while vLLM generates

ROLLOUT_N=${ROLLOUT_N:-8}
TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-256}
PPO_MINI_BATCH_SIZE=${PPO_MINI_BATCH_SIZE:-128}
PPO_MAX_TOKEN_LEN_PER_GPU=${PPO_MAX_TOKEN_LEN_PER_GPU:-16384}
MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-1024}
MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-4096} # observations included, up to 512 tokens each
MAX_ASSISTANT_TURNS=${MAX_ASSISTANT_TURNS:-5}    # four with a search, the last one answers

ACTOR_LR=${ACTOR_LR:-1e-6}
KL_LOSS_COEF=${KL_LOSS_COEF:-0.001}
SEED=${SEED:-0}

TOTAL_STEPS=${TOTAL_STEPS:-300}
TEST_FREQ=${TEST_FREQ:-25}
VAL_SAMPLES=${VAL_SAMPLES:-500} # of the 7405 validation questions; -1 for all
SAVE_FREQ=${SAVE_FREQ:-50}
LOGGER=${LOGGER:-[console]} # for example [console,wandb]
EXPERIMENT_NAME=${EXPERIMENT_NAME:-qwen2_5_7b_${BACKEND}_${ADV_ESTIMATOR}_seed${SEED}}
OUTPUT_DIR=${OUTPUT_DIR:-$PWD/outputs/search_hotpotqa/$EXPERIMENT_NAME}
DRY_RUN=${DRY_RUN:-0}
#######################################################################

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 2
}

########################### checks ###########################
for name in NNODES NGPUS_PER_NODE ACTOR_TP ACTOR_PP ACTOR_CP ROLLOUT_TP ROLLOUT_N \
    TRAIN_BATCH_SIZE PPO_MINI_BATCH_SIZE; do
    [[ ${!name} =~ ^[1-9][0-9]{0,8}$ ]] || fail "$name=${!name} is not a whole number above 0"
done
[[ $ADV_ESTIMATOR =~ ^(ms_grpo|grpo)$ ]] || fail "ADV_ESTIMATOR=$ADV_ESTIMATOR: ms_grpo or grpo"
[[ $BACKEND =~ ^(megatron|fsdp)$ ]] || fail "BACKEND=$BACKEND: megatron or fsdp"
if [ "$BACKEND" = fsdp ] && ((ACTOR_TP * ACTOR_PP != 1)); then
    fail "BACKEND=fsdp has no ACTOR_TP=$ACTOR_TP, ACTOR_PP=$ACTOR_PP: leave both at 1"
fi
((ROLLOUT_N >= 2)) || fail "ROLLOUT_N=1: an advantage compares the responses of a group; take 8"

GPUS=$((NNODES * NGPUS_PER_NODE))
MODEL_PARALLEL=$((ACTOR_TP * ACTOR_PP * ACTOR_CP))
((GPUS % MODEL_PARALLEL == 0)) || fail "ACTOR_TP x ACTOR_PP x ACTOR_CP =" \
    "$ACTOR_TP x $ACTOR_PP x $ACTOR_CP = $MODEL_PARALLEL does not divide" \
    "NNODES x NGPUS_PER_NODE = $NNODES x $NGPUS_PER_NODE = $GPUS GPUs"
DP=$((GPUS / MODEL_PARALLEL))
((NGPUS_PER_NODE % ROLLOUT_TP == 0)) || fail "ROLLOUT_TP = $ROLLOUT_TP does not divide" \
    "NGPUS_PER_NODE = $NGPUS_PER_NODE"
RANKS="data-parallel ranks = $GPUS / $MODEL_PARALLEL = $DP"
SEQUENCES=$((TRAIN_BATCH_SIZE * ROLLOUT_N))
((SEQUENCES % DP == 0)) || fail "TRAIN_BATCH_SIZE x ROLLOUT_N = $TRAIN_BATCH_SIZE x $ROLLOUT_N" \
    "= $SEQUENCES is not a multiple of the $RANKS"
MINI_SEQUENCES=$((PPO_MINI_BATCH_SIZE * ROLLOUT_N))
((MINI_SEQUENCES % DP == 0)) || fail "PPO_MINI_BATCH_SIZE x ROLLOUT_N =" \
    "$PPO_MINI_BATCH_SIZE x $ROLLOUT_N = $MINI_SEQUENCES is not a multiple of the $RANKS"
((TRAIN_BATCH_SIZE % PPO_MINI_BATCH_SIZE == 0)) || fail "TRAIN_BATCH_SIZE = $TRAIN_BATCH_SIZE is" \
    "not a multiple of PPO_MINI_BATCH_SIZE = $PPO_MINI_BATCH_SIZE"
if ((NNODES > 1)) && [[ $RETRIEVAL_SERVICE_URL =~ ^https?://(localhost|127\.|\[::1\]) ]]; then
    fail "RETRIEVAL_SERVICE_URL=$RETRIEVAL_SERVICE_URL: the other nodes cannot reach a loopback" \
        "address; serve with --host on an address of your private network"
fi

########################### parameter arrays ###########################
DATA=(
    algorithm.adv_estimator="$ADV_ESTIMATOR"
    algorithm.use_kl_in_reward=False
    data.train_files="$DATA_DIR/train.parquet"
    data.val_files="$DATA_DIR/validation.parquet"
    data.val_max_samples="$VAL_SAMPLES"
    data.train_batch_size="$TRAIN_BATCH_SIZE"
    data.max_prompt_length="$MAX_PROMPT_LENGTH"
    data.max_response_length="$MAX_RESPONSE_LENGTH"
    data.filter_overlong_prompts=True
    data.seed="$SEED"
    reward.custom_reward_function.path="$REWARD_FN"
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.metric="$REWARD_METRIC"
)

MODEL=(
    actor_rollout_ref.model.path="$MODEL_PATH"
    actor_rollout_ref.model.use_remove_padding=True
    actor_rollout_ref.model.enable_gradient_checkpointing=True
)

ACTOR=(
    actor_rollout_ref.actor.optim.lr="$ACTOR_LR"
    actor_rollout_ref.actor.ppo_mini_batch_size="$PPO_MINI_BATCH_SIZE"
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu="$PPO_MAX_TOKEN_LEN_PER_GPU"
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef="$KL_LOSS_COEF"
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.actor.entropy_coeff=0
)

REF=(
    actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True
    actor_rollout_ref.ref.log_prob_max_token_len_per_gpu="$PPO_MAX_TOKEN_LEN_PER_GPU"
)

if [ "$BACKEND" = megatron ]; then
    ENGINE=(model_engine=megatron)
    ACTOR+=(
        actor_rollout_ref.actor.megatron.tensor_model_parallel_size="$ACTOR_TP"
        actor_rollout_ref.actor.megatron.pipeline_model_parallel_size="$ACTOR_PP"
        actor_rollout_ref.actor.megatron.context_parallel_size="$ACTOR_CP"
        actor_rollout_ref.actor.megatron.param_offload="$OFFLOAD"
        actor_rollout_ref.actor.megatron.optimizer_offload="$OFFLOAD"
        # Weights are read from, and sent to vLLM in, Hugging Face's format by Megatron-Bridge.
        actor_rollout_ref.actor.megatron.use_mbridge=True
        actor_rollout_ref.actor.megatron.vanilla_mbridge=False
        # Megatron's own switch for activation checkpointing; that of MODEL is FSDP's.
        actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full
        actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method=uniform
        actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=1
    )
    REF+=(
        actor_rollout_ref.ref.megatron.tensor_model_parallel_size="$ACTOR_TP"
        actor_rollout_ref.ref.megatron.pipeline_model_parallel_size="$ACTOR_PP"
        actor_rollout_ref.ref.megatron.context_parallel_size="$ACTOR_CP"
        actor_rollout_ref.ref.megatron.param_offload="$OFFLOAD"
    )
else
    ENGINE=(model_engine=dp)
    ACTOR+=(
        actor_rollout_ref.actor.strategy=fsdp2
        actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size="$ACTOR_CP"
        actor_rollout_ref.actor.fsdp_config.param_offload="$OFFLOAD"
        actor_rollout_ref.actor.fsdp_config.optimizer_offload="$OFFLOAD"
    )
    REF+=(
        actor_rollout_ref.ref.fsdp_config.ulysses_sequence_parallel_size="$ACTOR_CP"
        actor_rollout_ref.ref.fsdp_config.param_offload="$OFFLOAD"
    )
fi

ROLLOUT=(
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n="$ROLLOUT_N"
    actor_rollout_ref.rollout.tensor_model_parallel_size="$ROLLOUT_TP"
    actor_rollout_ref.rollout.gpu_memory_utilization="$ROLLOUT_GPU_MEM_UTIL"
    actor_rollout_ref.rollout.max_model_len=$((MAX_PROMPT_LENGTH + MAX_RESPONSE_LENGTH))
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu="$PPO_MAX_TOKEN_LEN_PER_GPU"
    # A row's agent_name wins; without this a row that has none would never search.
    actor_rollout_ref.rollout.agent.default_agent_loop=search_tool_agent
    actor_rollout_ref.rollout.multi_turn.enable=True
    actor_rollout_ref.rollout.multi_turn.format=hermes
    actor_rollout_ref.rollout.multi_turn.tool_config_path="$TOOL_CONFIG"
    actor_rollout_ref.rollout.multi_turn.max_assistant_turns="$MAX_ASSISTANT_TURNS"
    # Ray's workers, on whatever node, read the address from their environment.
    +ray_kwargs.ray_init.runtime_env.env_vars.RETRIEVAL_SERVICE_URL="'$RETRIEVAL_SERVICE_URL'"
)

TRAINER=(
    trainer.nnodes="$NNODES"
    trainer.n_gpus_per_node="$NGPUS_PER_NODE"
    trainer.logger="$LOGGER"
    trainer.project_name=search_hotpotqa
    trainer.experiment_name="$EXPERIMENT_NAME"
    trainer.total_epochs=1000 # TOTAL_STEPS ends the run
    trainer.total_training_steps="$TOTAL_STEPS"
    trainer.val_before_train=True
    trainer.test_freq="$TEST_FREQ"
    trainer.save_freq="$SAVE_FREQ"
    trainer.max_actor_ckpt_to_keep=2
    trainer.default_local_dir="$OUTPUT_DIR/checkpoints"
    trainer.validation_data_dir="$OUTPUT_DIR/validation"
)

########################### launch ###########################
COMMAND=(
    python3 -m verl.trainer.main_ppo
    "${ENGINE[@]}" "${DATA[@]}" "${MODEL[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${REF[@]}"
    "${TRAINER[@]}" "$@"
)
if [ "$DRY_RUN" = 1 ]; then
    printf '%s\n' "${COMMAND[@]}"
    exit 0
fi

for file in "$DATA_DIR/train.parquet" "$DATA_DIR/validation.parquet"; do
    [ -f "$file" ] || fail "$file does not exist: verl-msgrpo prepare hotpotqa --out $DATA_DIR"
done
[ -f "$REWARD_FN" ] || fail "REWARD_FN=$REWARD_FN does not exist"
export RETRIEVAL_SERVICE_URL
# One search, before Ray and the GPUs are taken.
python3 - "$RETRIEVAL_SERVICE_URL" <<'EOF' || exit 2
import sys

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.probe import probe
from verl_msgrpo.search.settings import read_settings

try:
    probe(read_settings({"retrieval_service_url": sys.argv[1], "timeout": 10}).client)
except UserError as error:
    sys.exit(f"RETRIEVAL_SERVICE_URL: {error}")
EOF

exec "${COMMAND[@]}"
