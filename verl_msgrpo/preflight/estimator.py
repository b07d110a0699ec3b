"""The advantage estimator, its group, and the settings of MS-GRPO."""

import difflib
import re
from collections.abc import Iterator

import torch
from omegaconf import DictConfig

from verl_msgrpo.estimator.advantages import ms_grpo_advantages
from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.preflight.names import unknown
from verl_msgrpo.preflight.problems import WARNING, Problem, one_line
from verl_msgrpo.preflight.run import ACTOR, ROLLOUT, Run
from verl_msgrpo.preflight.settings import number, text, value, whole
from verl_msgrpo.verl_plugin.estimator import ms_grpo_config

CHECK = "estimator"
NAME = "algorithm.adv_estimator"
# Estimators that compare the responses to one prompt with each other.
GROUP_ESTIMATORS = (
    "ms_grpo",
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "gdpo",
    "rloo",
    "rloo_vectorized",
    "opo",
    "gpg",
    "reinforce_plus_plus_baseline",
    "optimal_token_baseline",
    "tir_optimal_token_baseline",
)
_EXAMPLES = {
    "scales": "[2,4,8]",
    "num_scales": "4",
    "min_scale": "2",
    "scale_weights": "null",
    "subgroups": "auto",
    "subgroups_per_scale": "8",
    "normalize_by_std": "null",
    "epsilon": "1e-6",
    "seed": "0",
    "max_terms": "65536",
    "preset": "paper",
}


def check_estimator(run: Run) -> Iterator[Problem]:
    """Unknown names, groups of one, and settings that do not fit the group."""
    name = text(run.config, NAME)
    if name not in (known := _registered()):
        if name == "ms_grpo":
            fix = "export VERL_USE_EXTERNAL_MODULES=verl_msgrpo.verl_plugin"
            yield Problem(CHECK, "verl has not loaded this package's plugin", fix)
        else:
            yield unknown(CHECK, NAME, name, sorted(known))
        return
    if name in GROUP_ESTIMATORS:
        yield from _group(run, name)
    settings = value(run.config, "algorithm.ms_grpo")
    if name == "ms_grpo":
        yield from _ms_grpo(run)
        if value(run.config, "trainer.use_v1") is not True:
            message = "the deprecated trainer does not check or log what this package adds"
            yield Problem(CHECK, message, "trainer.use_v1=True", WARNING)
    elif settings is not None:
        message = f"algorithm.ms_grpo is set, but {NAME} is {name}"
        yield Problem(CHECK, message, f"{NAME}=ms_grpo", WARNING)
    yield from _filter_groups(run)
    yield from _policy_loss(run)


def _registered() -> set[str]:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    return {str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY}


def _policy_loss(run: Run) -> Iterator[Problem]:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    key = f"{ACTOR}.policy_loss.loss_mode"
    mode = text(run.config, key)
    if mode not in POLICY_LOSS_REGISTRY:
        yield unknown(CHECK, key, mode, sorted(POLICY_LOSS_REGISTRY))


def _group(run: Run, name: str) -> Iterator[Problem]:
    if run.n < 2:
        message = f"{name} compares the responses of a group, and {ROLLOUT}.n is {run.n}"
        yield Problem(CHECK, message, f"{ROLLOUT}.n=8")
    elif number(run.config, f"{ROLLOUT}.temperature", 1.0) == 0 or not value(
        run.config, f"{ROLLOUT}.do_sample"
    ):
        message = "without sampling the responses of a group are equal, and every advantage is 0"
        yield Problem(CHECK, message, f"{ROLLOUT}.temperature=1.0 {ROLLOUT}.do_sample=True")


def _ms_grpo(run: Run) -> Iterator[Problem]:
    algorithm = value(run.config, "algorithm")
    try:
        settings = ms_grpo_config(algorithm)
    except ValueError as error:
        yield Problem(CHECK, one_line(error), _setting_fix(str(error)))
        return
    if run.n < 2:
        return
    for scale in settings.scales or ():
        if scale > run.n:
            fits = sorted({min(one, run.n) for one in settings.scales or ()})
            message = f"scale {scale} is above the group of {ROLLOUT}.n = {run.n}"
            fix = f"+algorithm.ms_grpo.scales={fits}".replace(" ", "")
            yield Problem(CHECK, message, fix)
            break
    if settings.min_scale > run.n:
        message = f"min_scale = {settings.min_scale} is above {ROLLOUT}.n = {run.n}"
        yield Problem(CHECK, message, "+algorithm.ms_grpo.min_scale=2")
    sizes = run.n - min(settings.min_scale, run.n) + 1
    if settings.num_scales is not None and settings.num_scales > sizes:
        message = f"num_scales = {settings.num_scales}, but a group of {run.n} has {sizes} scales"
        yield Problem(CHECK, message, f"+algorithm.ms_grpo.num_scales={sizes}")
    yield from _budget(run, settings)


def _budget(run: Run, settings: MSGRPOConfig) -> Iterator[Problem]:
    """`subgroups: all` refuses, in the middle of a run, a group with too many distinct rewards."""
    if settings.subgroups != "all":
        return
    try:
        ms_grpo_advantages(torch.arange(run.n, dtype=torch.float64)[None], settings)
    except ValueError as error:
        message = f"all {run.n} rewards of a group may differ: {one_line(error, 200)}"
        yield Problem(CHECK, message, "+algorithm.ms_grpo.subgroups=auto")


def _setting_fix(message: str) -> str:
    """An override that is allowed, for the setting that an error of MSGRPOConfig names."""
    found = re.match(r"ms_grpo\.(\w+)", message)
    name = found.group(1) if found else None
    if name in _EXAMPLES:
        return f"+algorithm.ms_grpo.{name}={_EXAMPLES[name]}"
    if "norm_adv_by_std_in_grpo" in message:
        return "algorithm.norm_adv_by_std_in_grpo=True"
    if name is not None:
        nearest = (difflib.get_close_matches(name, _EXAMPLES, n=1, cutoff=0.5) or ["num_scales"])[0]
        return f"+algorithm.ms_grpo.{nearest}={_EXAMPLES[nearest]}"
    return "+algorithm.ms_grpo.preset=paper"


def _filter_groups(run: Run) -> Iterator[Problem]:
    section = value(run.config, "algorithm.filter_groups")
    if not isinstance(section, DictConfig) or section.get("enable") is not True:
        return
    if not section.get("metric"):
        message = "algorithm.filter_groups.enable without a metric"
        yield Problem(CHECK, message, "algorithm.filter_groups.metric=acc")
    if whole(run.config, "algorithm.filter_groups.max_num_gen_batches", default=0) == 0:
        message = "a step generates without limit while every group is filtered out"
        fix = "algorithm.filter_groups.max_num_gen_batches=10"
        yield Problem(CHECK, message, fix, WARNING)
