"""verl's own validation: everything that it would reject after Ray has started."""

import contextlib
import copy
import io
import warnings
from collections.abc import Callable, Iterator

from omegaconf import DictConfig, OmegaConf, open_dict

from verl_msgrpo.preflight.problems import Problem, one_line
from verl_msgrpo.preflight.run import ACTOR, MEGATRON, REF, ROLLOUT
from verl_msgrpo.preflight.settings import A

CHECK = "verl"
# Part of verl's message -> an override that mends it.
FIXES = (
    ("loss_agg_mode", f"{ACTOR}.loss_agg_mode=token-mean"),
    ("Rollout mode 'sync'", f"{ROLLOUT}.mode=async"),
    ("pipeline_model_parallel_size > 1", f"{ROLLOUT}.pipeline_model_parallel_size=1"),
    ("expert_parallel_size must be equal", f"{ROLLOUT}.expert_parallel_size=1"),
    ("temperature should be greater", f"{ROLLOUT}.temperature=1.0"),
    ("use_remove_padding", f"{A}.model.use_remove_padding=True"),
    ("router_replay", f"{MEGATRON}.router_replay.mode=disabled"),
    ("log_prob_micro_batch_size", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=1"),
    ("ppo_micro_batch_size", f"{ACTOR}.ppo_micro_batch_size_per_gpu=1"),
    ("must be >= actor.ppo_mini_batch_size", f"{ACTOR}.ppo_mini_batch_size=<at most the batch>"),
    ("strategy", f"{ACTOR}.strategy=fsdp2"),
    ("max_seqlen_per_dp_cp_rank", f"{MEGATRON}.dynamic_context_parallel=False"),
    ("dtype", f"{MEGATRON}.dtype=bfloat16"),
    ("lora", f"{A}.model.lora_rank=0"),
    ("disaggregation", f"{ROLLOUT}.disaggregation.enabled=False"),
)


def check_verl(config: DictConfig) -> Iterator[Problem]:
    """Runs validate_config and builds the dataclasses that verl's workers build."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    def validate() -> None:
        validate_config(config, need_reference_policy(config), need_critic(config))

    steps: list[Callable[[], object]] = [
        validate,
        lambda: omega_conf_to_dataclass(config.actor_rollout_ref.actor),
        lambda: omega_conf_to_dataclass(config.actor_rollout_ref.rollout),
    ]
    if need_reference_policy(config):
        steps.append(lambda: omega_conf_to_dataclass(_as_reference(config)))
    seen = set()
    for step in steps:
        message = _failure(step)
        if message is not None and message not in seen:
            seen.add(message)
            yield Problem(CHECK, message, _fix(message))


def _as_reference(config: DictConfig) -> DictConfig:
    """The reference model's section as verl's worker renames it before it builds the engine."""
    ref = copy.deepcopy(OmegaConf.select(config, REF))
    with open_dict(ref):
        ref.ppo_mini_batch_size = OmegaConf.select(config, f"{ACTOR}.ppo_mini_batch_size")
        ref.ppo_micro_batch_size = ref.pop("log_prob_micro_batch_size", None)
        ref.ppo_micro_batch_size_per_gpu = ref.pop("log_prob_micro_batch_size_per_gpu", None)
        ref.use_dynamic_bsz = ref.pop("log_prob_use_dynamic_bsz", False)
        ref.ppo_max_token_len_per_gpu = ref.pop("log_prob_max_token_len_per_gpu", None)
    return ref


def _failure(step: Callable[[], object]) -> str | None:
    """What a step of verl rejects, None if nothing. verl's own prints and warnings are dropped."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            step()
        except Exception as error:  # asserts, ValueErrors, errors of Hydra around them
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            return one_line(cause) or type(cause).__name__
    return None


def _fix(message: str) -> str:
    return next((fix for part, fix in FIXES if part in message), "the setting that verl names")
