#!/usr/bin/env bash
# Teaches a tiny language model to search with MS-GRPO, through verl's ordinary main_ppo, without a
# GPU. Sets up what is missing; needs Linux, two cores, 10 GiB of memory, no account and no key.
#
#   bash examples/quickstart/run.sh [Hydra overrides]
#
# Further arguments are passed on to main_ppo, for example actor_rollout_ref.actor.optim.lr=1e-3.
set -euo pipefail
# Ray's daemons and all else that this starts end with it, also when it is interrupted.
TREE=$(dirname "${BASH_SOURCE[0]}")/../../scripts/whole_tree.py
[ "${WHOLE_TREE:-}" = "$PPID" ] || exec "${PYTHON:-python3}" "$TREE" bash "${BASH_SOURCE[0]}" "$@"

CALLED_FROM=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

########################### user-adjustable ###########################
ADV_ESTIMATOR=${ADV_ESTIMATOR:-ms_grpo} # ms_grpo | grpo: everything else stays the same
STEPS=${STEPS:-15}
SEED=${SEED:-0}
ROLLOUT_N=${ROLLOUT_N:-8}
TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-8}
ACTOR_LR=${ACTOR_LR:-2e-4}
DEVICE=${DEVICE:-cpu}     # cpu | cuda: the latter in the environment of scripts/setup_gpu.sh (VENV)
BACKEND=${BACKEND:-fsdp}  # fsdp (FSDP2) | megatron, which needs cuda
RANKS=${RANKS:-1} # training processes, each with a vLLM replica
SEARCH_URL=${SEARCH_URL:-} # http://host:port/retrieve of a running server; empty: one is started
VENV=${VENV:-$PWD/.venv}
RUN_DIR=${RUN_DIR:-$PWD/outputs/quickstart/$ADV_ESTIMATOR-seed$SEED}
DATA_DIR=${DATA_DIR:-$PWD/outputs/quickstart/data-seed$SEED}
#######################################################################

HERE=$PWD/examples/quickstart
STARTED=$SECONDS
say() { printf '\n== %s\n' "$*"; }
fail() { printf 'run.sh: %s\n' "$*" >&2; exit 2; }
source examples/common/quoted.sh

[[ $ADV_ESTIMATOR =~ ^(ms_grpo|grpo)$ ]] || fail "ADV_ESTIMATOR=$ADV_ESTIMATOR: ms_grpo or grpo"
[[ $DEVICE =~ ^(cpu|cuda)$ ]] || fail "DEVICE=$DEVICE: cpu or cuda"
[[ $BACKEND =~ ^(fsdp|megatron)$ ]] || fail "BACKEND=$BACKEND: fsdp or megatron"
for name in STEPS ROLLOUT_N TRAIN_BATCH_SIZE RANKS; do
    [[ ${!name} =~ ^[1-9][0-9]{0,8}$ ]] || fail "$name=${!name} is not a whole number above 0"
done
[[ $SEED =~ ^[0-9]{1,9}$ ]] || fail "SEED=$SEED is not a whole number"
((TRAIN_BATCH_SIZE * ROLLOUT_N % RANKS == 0)) ||
    fail "TRAIN_BATCH_SIZE x ROLLOUT_N = $((TRAIN_BATCH_SIZE * ROLLOUT_N)) does not divide by RANKS=$RANKS"
# verl wants a rank's sequences to divide into equal micro-batches.
PER_RANK=$((TRAIN_BATCH_SIZE * ROLLOUT_N / RANKS))
MICRO_BATCH=$((PER_RANK < 64 ? PER_RANK : 64))
until ((PER_RANK % MICRO_BATCH == 0)); do MICRO_BATCH=$((MICRO_BATCH - 1)); done
for name in VENV RUN_DIR DATA_DIR; do
    [[ ${!name} = /* ]] || printf -v "$name" '%s' "$CALLED_FROM/${!name}"
done
# A finished run is replaced by the next one; nothing else is ever deleted.
if [ -n "$(ls -A "$RUN_DIR" 2>/dev/null)" ] && [ ! -f "$RUN_DIR/.quickstart" ]; then
    fail "RUN_DIR=$RUN_DIR holds something else than a run of the quickstart: name another folder"
fi

say "1/4 environment"
if [ "$DEVICE" = cpu ]; then
    bash scripts/setup_cpu.sh "$VENV"
elif [ ! -x "$VENV/bin/verl-msgrpo" ]; then
    fail "VENV=$VENV has no verl-msgrpo: bash scripts/setup_gpu.sh $VENV"
fi
export PATH="$VENV/bin:$PATH"
# Threads that wait must not spin: verl runs about ten processes on the same cores.
export OMP_WAIT_POLICY=PASSIVE
SETUP_S=$((SECONDS - STARTED))

say "2/4 model and data (seed $SEED)"
# Made anew when the seed or the code that makes them differs.
made_of=$(cat "$HERE"/{knowledge_base,questions,policy,prepare,retrieval}.py \
    verl_msgrpo/search/observation.py | sha256sum | cut -c1-16)
if [ "$(cat "$DATA_DIR/.made_of" 2>/dev/null)" = "$made_of" ]; then
    echo "ready: $DATA_DIR"
else
    python "$HERE/prepare.py" --out "$DATA_DIR" --seed "$SEED"
    echo "$made_of" >"$DATA_DIR/.made_of"
fi

say "3/4 training: $STEPS steps of $TRAIN_BATCH_SIZE questions x $ROLLOUT_N rollouts, $ADV_ESTIMATOR"
rm -rf "$RUN_DIR"
mkdir -p "$RUN_DIR"
touch "$RUN_DIR/.quickstart"

# No hub; one thread a process.
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 RAY_worker_niceness=0
export VERL_FILE_LOGGER_PATH=$RUN_DIR/metrics.jsonl

# The search engine: unless there is one, a retrieval server on a free port of this machine, for as
# long as we run.
if [ -z "$SEARCH_URL" ]; then
    verl-msgrpo index --corpus "$DATA_DIR/corpus.jsonl" --output "$RUN_DIR/index" >"$RUN_DIR/server.log" 2>&1
    verl-msgrpo serve --index "$RUN_DIR/index" --port 0 --port-file "$RUN_DIR/port" \
        >>"$RUN_DIR/server.log" 2>&1 &
    SERVER=$!
    trap 'kill "$SERVER" 2>/dev/null; wait "$SERVER" 2>/dev/null || true' EXIT
    while [ ! -s "$RUN_DIR/port" ]; do
        kill -0 "$SERVER" 2>/dev/null || { cat "$RUN_DIR/server.log" >&2; exit 1; }
        sleep 0.2
    done
    SEARCH_URL=http://127.0.0.1:$(cat "$RUN_DIR/port")/retrieve
fi
export RETRIEVAL_SERVICE_URL=$SEARCH_URL
echo "search engine: $RETRIEVAL_SERVICE_URL"

DATA=(
    data.train_files="$(quoted "$DATA_DIR/train.parquet")"
    data.val_files="$(quoted "$DATA_DIR/val.parquet")"
    data.train_batch_size="$TRAIN_BATCH_SIZE"
    data.max_prompt_length=48
    data.max_response_length=192
    data.seed="$SEED"
    data.dataloader_num_workers=0
)

MODEL=(
    actor_rollout_ref.model.path="$(quoted "$DATA_DIR/model")"
    actor_rollout_ref.model.use_remove_padding=False
    actor_rollout_ref.model.enable_gradient_checkpointing=False
)

ACTOR=(
    actor_rollout_ref.actor.optim.lr="$ACTOR_LR"
    actor_rollout_ref.actor.use_kl_loss=False
    actor_rollout_ref.actor.ppo_mini_batch_size="$TRAIN_BATCH_SIZE"
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu="$MICRO_BATCH"
    actor_rollout_ref.actor.use_dynamic_bsz=False
    actor_rollout_ref.actor.use_torch_compile=False
)

if [ "$BACKEND" = fsdp ]; then
    PRECISION=float32
    ENGINE=(
        +actor_rollout_ref.model.override_config.attn_implementation=sdpa
        actor_rollout_ref.actor.strategy=fsdp2
        actor_rollout_ref.actor.fsdp_config.use_torch_compile=False
        actor_rollout_ref.actor.fsdp_config.model_dtype=float32
        actor_rollout_ref.actor.fsdp_config.dtype=float32
        # Without this verl computes in bfloat16 (autocast) while vLLM samples in float32.
        +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32
    )
else
    PRECISION=bfloat16 # verl's Megatron engine takes no other
    ENGINE=(
        model_engine=megatron
        actor_rollout_ref.actor.megatron.use_mbridge=True
        actor_rollout_ref.actor.megatron.vanilla_mbridge=False
    )
fi

if [ "$DEVICE" = cpu ]; then
    export VERL_PLATFORM=cpu # of verl-msgrpo
    PLATFORM=(
        trainer.device=cpu
        # verl counts its workers in Ray's GPU slots; on CPU they are slots and nothing more.
        +ray_kwargs.ray_init.num_gpus="$RANKS"
        # vLLM has no sleep mode on CPU.
        +actor_rollout_ref.rollout.enable_sleep_mode=False
        actor_rollout_ref.rollout.free_cache_engine=False
    )
else
    PLATFORM=(trainer.device=cuda actor_rollout_ref.rollout.gpu_memory_utilization=0.3)
fi

ROLLOUT=(
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n="$ROLLOUT_N"
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.dtype="$PRECISION"
    actor_rollout_ref.rollout.load_format=auto
    actor_rollout_ref.rollout.enforce_eager=True
    actor_rollout_ref.rollout.max_model_len=256
    actor_rollout_ref.rollout.max_num_seqs=64
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu="$MICRO_BATCH"
    actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=32
    # Held-out questions are answered as training questions are: by sampling.
    actor_rollout_ref.rollout.val_kwargs.do_sample=True
    actor_rollout_ref.rollout.val_kwargs.temperature=1.0
    actor_rollout_ref.rollout.val_kwargs.top_p=1.0
    actor_rollout_ref.rollout.val_kwargs.top_k=-1
)

SEARCH=(
    actor_rollout_ref.rollout.agent.num_workers=1
    actor_rollout_ref.rollout.agent.default_agent_loop=search_tool_agent
    actor_rollout_ref.rollout.multi_turn.enable=True
    actor_rollout_ref.rollout.multi_turn.format=hermes
    actor_rollout_ref.rollout.multi_turn.tool_config_path="$(quoted "$PWD/verl_msgrpo/search/config/search_tool.yaml")"
    actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4
    actor_rollout_ref.rollout.multi_turn.max_user_turns=4
)

REWARD=(
    reward.num_workers=1
    reward.custom_reward_function.path="$(quoted "$HERE/reward.py")"
    reward.custom_reward_function.name=compute_score
)

TRAINER=(
    trainer.nnodes=1
    trainer.n_gpus_per_node="$RANKS"
    trainer.logger='[console,file]'
    trainer.total_epochs=1000
    trainer.total_training_steps="$STEPS"
    trainer.val_before_train=True
    trainer.test_freq="$STEPS"
    trainer.save_freq="$STEPS"
    trainer.resume_mode=disable
    trainer.default_local_dir="$(quoted "$RUN_DIR/checkpoints")"
    trainer.validation_data_dir="$(quoted "$RUN_DIR/validation")"
    trainer.rollout_data_dir="$(quoted "$RUN_DIR/rollouts")"
    # verl looks for finished rollouts every 2 s, half of a step here.
    trainer.v1.sampler.custom_sampler.path="$(quoted "$HERE/fast_polling.py")"
    trainer.v1.sampler.custom_sampler.name=FastPollingReplayBuffer
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1
    ray_kwargs.ray_init.num_cpus=16
    +ray_kwargs.ray_init.include_dashboard=False
)

python "$HERE/progress.py" --run-dir "$RUN_DIR" -- \
    python -m verl.trainer.main_ppo \
    algorithm.adv_estimator="$ADV_ESTIMATOR" \
    "${ENGINE[@]}" "${PLATFORM[@]}" "${DATA[@]}" "${MODEL[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" \
    "${SEARCH[@]}" "${REWARD[@]}" "${TRAINER[@]}" "$@"

say "4/4 result"
python "$HERE/summary.py" "$RUN_DIR"
printf '\nset-up %d s, all else %d s\n' "$SETUP_S" $((SECONDS - STARTED - SETUP_S))
