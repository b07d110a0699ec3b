# Sourced by the recipes, after their knobs: the overrides that all tasks share, and `launch`.
# shellcheck shell=bash disable=SC2034

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 2
}

source "${BASH_SOURCE[0]%/*}/quoted.sh"

# What Hydra composes is checked by the preflight; these knobs are read by bash itself.
[[ $BACKEND =~ ^(megatron|fsdp)$ ]] || fail "BACKEND=$BACKEND: megatron or fsdp"
if [ "$BACKEND" = fsdp ] && [ "$ACTOR_TP,$ACTOR_PP" != 1,1 ]; then
    fail "BACKEND=fsdp has no ACTOR_TP=$ACTOR_TP, ACTOR_PP=$ACTOR_PP: leave both at 1"
fi
[[ $DRY_RUN =~ ^[01]$ ]] || fail "DRY_RUN=$DRY_RUN: 0 or 1"
for name in MAX_PROMPT_LENGTH MAX_RESPONSE_LENGTH; do
    [[ ${!name} =~ ^[1-9][0-9]{0,8}$ ]] || fail "$name=${!name} is not a whole number above 0"
done

METRICS=${VERL_FILE_LOGGER_PATH:-$OUTPUT_DIR/metrics.jsonl} # of the logger "file"
[[ $METRICS = *.jsonl ]] || fail "VERL_FILE_LOGGER_PATH=$METRICS: a .jsonl file"

########################### parameter arrays ###########################
DATA=(
    algorithm.adv_estimator="$ADV_ESTIMATOR"
    algorithm.use_kl_in_reward=False
    data.train_files="$(quoted "$DATA_DIR/train.parquet")"
    data.val_files="$(quoted "$DATA_DIR/validation.parquet")"
    data.val_max_samples="$VAL_SAMPLES"
    data.train_batch_size="$TRAIN_BATCH_SIZE"
    data.max_prompt_length="$MAX_PROMPT_LENGTH"
    data.max_response_length="$MAX_RESPONSE_LENGTH"
    data.filter_overlong_prompts=True
    data.seed="$SEED"
    reward.custom_reward_function.path="$(quoted "$REWARD_FN")"
    reward.custom_reward_function.name=compute_score
    "${MODEL_TEMPLATE[@]}"
)

MODEL=(
    actor_rollout_ref.model.path="$(quoted "$MODEL_PATH")"
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
    actor_rollout_ref.rollout.val_kwargs.n="$VAL_N"
    actor_rollout_ref.rollout.val_kwargs.do_sample=True
    actor_rollout_ref.rollout.val_kwargs.temperature="$VAL_TEMPERATURE"
    actor_rollout_ref.rollout.val_kwargs.top_p="$VAL_TOP_P"
)

TRAINER=(
    trainer.nnodes="$NNODES"
    trainer.n_gpus_per_node="$NGPUS_PER_NODE"
    trainer.logger="$LOGGER"
    trainer.project_name="$TASK"
    trainer.experiment_name="$(quoted "$EXPERIMENT_NAME")"
    trainer.total_epochs=1000 # TOTAL_STEPS ends the run
    trainer.total_training_steps="$TOTAL_STEPS"
    trainer.val_before_train=True
    trainer.test_freq="$TEST_FREQ"
    trainer.save_freq="$SAVE_FREQ"
    trainer.max_actor_ckpt_to_keep=2
    trainer.default_local_dir="$(quoted "$OUTPUT_DIR/checkpoints")"
    trainer.validation_data_dir="$(quoted "$OUTPUT_DIR/validation")"
    +ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH="$(quoted "$METRICS")"
)

# An override for a setting of the task's reward: reward_setting TASK NAME VALUE. The reward for mixed
# data takes it under the task's name.
reward_setting() {
    local kwargs=reward.custom_reward_function.reward_kwargs
    case $REWARD_FN in dispatch.py | */dispatch.py | pkg://*.dispatch) kwargs=$kwargs.$1 ;; esac
    printf '+%s.%s=%s' "$kwargs" "$2" "$3"
}

# verl begins the file anew, when it resumes too: what is there is kept as metrics.1.jsonl, .2, ...
keep_metrics() {
    local number=1
    [ -s "$METRICS" ] || return 0
    while [ -e "${METRICS%.jsonl}.$number.jsonl" ]; do number=$((number + 1)); done
    cp "$METRICS" "${METRICS%.jsonl}.$number.jsonl"
}

########################### launch ###########################
# Checks the overrides and starts verl with them; DRY_RUN=1 prints and checks only.
launch() {
    local check=(python3 -m verl_msgrpo.cli preflight ${GPU:+--gpu "$GPU"} -- "$@")
    local command=(python3 -m verl.trainer.main_ppo "$@")
    if [ "$DRY_RUN" = 1 ]; then
        printf '%s\n' "${command[@]}"
        exec "${check[@]}" >&2
    fi
    "${check[@]}" || fail "not started, see above (DRY_RUN=1 prints the command)"
    mkdir -p "$OUTPUT_DIR"
    keep_metrics
    exec "${command[@]}"
}
