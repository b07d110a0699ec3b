"""Numbers that are numbers: verl's configuration takes any text where a number belongs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from omegaconf import DictConfig

from verl_msgrpo.preflight.problems import Problem
from verl_msgrpo.preflight.settings import A, value

CHECK = "numbers"


@dataclass(frozen=True)
class _Rule:
    keys: str
    """Names below one section, separated by spaces."""
    section: str
    example: str
    low: float
    high: float = math.inf
    whole: bool = True
    null: bool = False


_ACTOR, _ROLLOUT, _REF = f"{A}.actor", f"{A}.rollout", f"{A}.ref"
_PARALLEL = (
    "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
    "expert_model_parallel_size"
)

RULES = (
    _Rule("nnodes", "trainer", "1", 1),
    _Rule("n_gpus_per_node", "trainer", "8", 1),
    _Rule("total_epochs", "trainer", "1000", 1),
    _Rule("total_training_steps max_actor_ckpt_to_keep", "trainer", "100", 1, null=True),
    _Rule("save_freq test_freq", "trainer", "25", -1),
    _Rule("train_batch_size", "data", "256", 1),
    _Rule("max_prompt_length max_response_length", "data", "1024", 1),
    _Rule("train_max_samples val_max_samples", "data", "-1", -1),
    _Rule("gen_batch_size val_batch_size", "data", "null", 1, null=True),
    _Rule("seed", "data", "0", 0, null=True),
    _Rule("ppo_mini_batch_size", _ACTOR, "128", 1),
    _Rule("ppo_epochs", _ACTOR, "1", 1),
    _Rule("ppo_max_token_len_per_gpu", _ACTOR, "16384", 1),
    _Rule("ppo_micro_batch_size_per_gpu ppo_micro_batch_size", _ACTOR, "4", 1, null=True),
    _Rule(
        "kl_loss_coef clip_ratio clip_ratio_low clip_ratio_high", _ACTOR, "0.001", 0, whole=False
    ),
    _Rule("entropy_coeff", _ACTOR, "0", -math.inf, whole=False),
    _Rule("lr", f"{_ACTOR}.optim", "1e-6", 0, 1, whole=False),
    _Rule("weight_decay", f"{_ACTOR}.optim", "0.01", 0, whole=False),
    _Rule(_PARALLEL, f"{_ACTOR}.megatron", "1", 1),
    _Rule(_PARALLEL, f"{_REF}.megatron", "1", 1),
    _Rule("virtual_pipeline_model_parallel_size", f"{_ACTOR}.megatron", "null", 1, null=True),
    _Rule("ulysses_sequence_parallel_size", f"{_ACTOR}.fsdp_config", "1", 1),
    _Rule("ulysses_sequence_parallel_size", _ACTOR, "1", 1),
    _Rule("log_prob_max_token_len_per_gpu", _REF, "16384", 1, null=True),
    _Rule("log_prob_micro_batch_size_per_gpu log_prob_micro_batch_size", _REF, "4", 1, null=True),
    _Rule("n", _ROLLOUT, "8", 1),
    _Rule("tensor_model_parallel_size data_parallel_size", _ROLLOUT, "1", 1),
    _Rule("pipeline_model_parallel_size expert_parallel_size", _ROLLOUT, "1", 1),
    _Rule("max_num_seqs max_num_batched_tokens", _ROLLOUT, "1024", 1),
    _Rule("max_model_len", _ROLLOUT, "null", 1, null=True),
    _Rule("log_prob_max_token_len_per_gpu", _ROLLOUT, "16384", 1, null=True),
    _Rule("log_prob_micro_batch_size_per_gpu", _ROLLOUT, "4", 1, null=True),
    _Rule("gpu_memory_utilization", _ROLLOUT, "0.6", 0.01, 1, whole=False),
    _Rule("temperature", _ROLLOUT, "1.0", 0, whole=False),
    _Rule("top_p", _ROLLOUT, "1.0", 0, 1, whole=False),
    _Rule("n", f"{_ROLLOUT}.val_kwargs", "1", 1),
    _Rule("temperature", f"{_ROLLOUT}.val_kwargs", "0", 0, whole=False),
    _Rule("top_p", f"{_ROLLOUT}.val_kwargs", "1.0", 0, 1, whole=False),
    _Rule("num_workers", f"{_ROLLOUT}.agent", "8", 1),
    _Rule("max_assistant_turns max_user_turns", f"{_ROLLOUT}.multi_turn", "5", 1, null=True),
    _Rule("max_parallel_calls", f"{_ROLLOUT}.multi_turn", "1", 1),
)

SWITCHES = (
    f"{_ACTOR}.use_dynamic_bsz",
    f"{_ACTOR}.use_kl_loss",
    f"{_ACTOR}.megatron.param_offload",
    f"{_ACTOR}.megatron.optimizer_offload",
    f"{_ACTOR}.megatron.use_mbridge",
    f"{_ACTOR}.fsdp_config.param_offload",
    f"{_ACTOR}.fsdp_config.optimizer_offload",
    f"{_REF}.megatron.param_offload",
    f"{_REF}.fsdp_config.param_offload",
    f"{_ROLLOUT}.log_prob_use_dynamic_bsz",
    f"{_ROLLOUT}.multi_turn.enable",
    f"{_ROLLOUT}.val_kwargs.do_sample",
    f"{A}.model.use_remove_padding",
    "algorithm.use_kl_in_reward",
    "data.filter_overlong_prompts",
    "trainer.val_before_train",
)


def check_numbers(config: DictConfig) -> Iterator[Problem]:
    """Values of another kind, or out of range. The other checks rely on these being right."""
    for rule in RULES:
        if value(config, rule.section) is None:  # the section of another engine
            continue
        for name in rule.keys.split():
            key = f"{rule.section}.{name}"
            found = value(config, key)
            if not _allowed(rule, found, _has(config, rule.section, name)):
                yield Problem(
                    CHECK, f"{key} is {found!r}: {_expected(rule)}", f"{key}={rule.example}"
                )
    for key in SWITCHES:
        found = value(config, key)
        if found is not None and not isinstance(found, bool):
            yield Problem(CHECK, f"{key} is {found!r}: True or False", f"{key}=True")


def _has(config: DictConfig, section: str, name: str) -> bool:
    node = value(config, section)
    return isinstance(node, DictConfig) and name in node


def _allowed(rule: _Rule, found: object, present: bool) -> bool:
    if found is None:
        return rule.null or not present
    if isinstance(found, bool) or not isinstance(found, int if rule.whole else (int, float)):
        return False
    return rule.low <= found <= rule.high  # NaN fails too


def _expected(rule: _Rule) -> str:
    noun = "a whole number" if rule.whole else "a number"
    if rule.high != math.inf:
        span = f" from {rule.low:g} to {rule.high:g}"
    else:
        span = f" of {rule.low:g} or more" if rule.low != -math.inf else ""
    return f"{noun}{span}{' or null' if rule.null else ''}"
