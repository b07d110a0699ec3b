"""The advantage estimator, its group, and the settings of MS-GRPO."""

import difflib
import re
from collections.abc import Iterator

from omegaconf import DictConfig

from verl_msgrpo.estimator.advantages import terms_and_budget
from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.estimator.scales import weighted_scales
from verl_msgrpo.preflight.launch import Launch
from verl_msgrpo.preflight.settings import (
    ACTOR,
    ROLLOUT,
    WARNING,
    Problem,
    number,
    one_line,
    text,
    unknown,
    value,
    whole,
)
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


def check_estimator(launch: Launch) -> Iterator[Problem]:
    """Unknown names, groups of one, and settings that do not fit the group."""
    name = text(launch.config, NAME)
    if name not in (known := _registered()):
        if name == "ms_grpo":
            fix = "export VERL_USE_EXTERNAL_MODULES=verl_msgrpo.verl_plugin"
            yield Problem(CHECK, "verl has not loaded this package's plugin", fix)
        else:
            yield unknown(CHECK, NAME, name, sorted(known))
        return
    if name in GROUP_ESTIMATORS:
        yield from _group(launch, name)
    settings = value(launch.config, "algorithm.ms_grpo")
    if name == "ms_grpo":
        yield from _ms_grpo(launch)
        if value(launch.config, "trainer.use_v1") is not True:
            message = "the deprecated trainer does not check or log what this package adds"
            yield Problem(CHECK, message, "trainer.use_v1=True", WARNING)
    elif settings is not None:
        message = f"algorithm.ms_grpo is set, but {NAME} is {name}"
        yield Problem(CHECK, message, f"{NAME}=ms_grpo", WARNING)
    yield from _filter_groups(launch)
    yield from _policy_loss(launch)


def _registered() -> set[str]:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    return {str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY}


def _policy_loss(launch: Launch) -> Iterator[Problem]:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    key = f"{ACTOR}.policy_loss.loss_mode"
    mode = text(launch.config, key)
    if mode not in POLICY_LOSS_REGISTRY:
        yield unknown(CHECK, key, mode, sorted(POLICY_LOSS_REGISTRY))


def _group(launch: Launch, name: str) -> Iterator[Problem]:
    if launch.n < 2:
        message = f"{name} compares the responses of a group, and {ROLLOUT}.n is {launch.n}"
        yield Problem(CHECK, message, f"{ROLLOUT}.n=8")
    elif number(launch.config, f"{ROLLOUT}.temperature", 1.0) == 0 or not value(
        launch.config, f"{ROLLOUT}.do_sample"
    ):
        message = "without sampling the responses of a group are equal, and every advantage is 0"
        yield Problem(CHECK, message, f"{ROLLOUT}.temperature=1.0 {ROLLOUT}.do_sample=True")


def _ms_grpo(launch: Launch) -> Iterator[Problem]:
    algorithm = value(launch.config, "algorithm")
    try:
        settings = ms_grpo_config(algorithm)
    except ValueError as error:
        yield Problem(CHECK, one_line(error), _setting_fix(str(error)))
        return
    if launch.n < 2:
        return
    for scale in settings.scales or ():
        if scale > launch.n:
            fits = sorted({min(one, launch.n) for one in settings.scales or ()})
            message = f"scale {scale} is above the size of a group, {ROLLOUT}.n = {launch.n}"
            fix = f"+algorithm.ms_grpo.scales={fits}".replace(" ", "")
            yield Problem(CHECK, message, fix)
            break
    if settings.min_scale > launch.n:
        message = f"min_scale = {settings.min_scale} is above {ROLLOUT}.n = {launch.n}"
        yield Problem(CHECK, message, "+algorithm.ms_grpo.min_scale=2")
    sizes = launch.n - min(settings.min_scale, launch.n) + 1
    if settings.num_scales is not None and settings.num_scales > sizes:
        message = (
            f"num_scales = {settings.num_scales}, but a group of {launch.n} has {sizes} scales"
        )
        yield Problem(CHECK, message, f"+algorithm.ms_grpo.num_scales={sizes}")
    yield from _budget(launch, settings)


def _budget(launch: Launch, settings: MSGRPOConfig) -> Iterator[Problem]:
    """`subgroups: all` refuses, in the middle of a run, a group with too many distinct rewards."""
    if settings.subgroups != "all" or settings.normalize_by_std is False:
        return  # without the std there is a closed form
    # The most terms that a group may have: all of its rewards differ.
    every = (1,) * launch.n
    terms, allowed = terms_and_budget(every, weighted_scales(launch.n, settings), settings)
    if terms > allowed:
        message = (
            f"subgroups is all: a group of {launch.n} different rewards has {terms} different "
            f"subgroups, and max_terms allows {allowed}"
        )
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


def _filter_groups(launch: Launch) -> Iterator[Problem]:
    section = value(launch.config, "algorithm.filter_groups")
    if not isinstance(section, DictConfig) or section.get("enable") is not True:
        return
    if not section.get("metric"):
        message = "algorithm.filter_groups.enable is True without a metric"
        yield Problem(CHECK, message, "algorithm.filter_groups.metric=acc")
    if whole(launch.config, "algorithm.filter_groups.max_num_gen_batches", default=0) == 0:
        message = "a step generates without limit while every group is filtered out"
        fix = "algorithm.filter_groups.max_num_gen_batches=10"
        yield Problem(CHECK, message, fix, WARNING)
