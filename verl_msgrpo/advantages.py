"""Multi-Scale GRPO: from the rewards of groups of responses to their advantages."""

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import NamedTuple

import torch

from verl_msgrpo.all_subgroups import count_terms, most_terms
from verl_msgrpo.block_advantages import in_reward_units, over_all, over_diverse
from verl_msgrpo.blocks import Block, blocks_of_equal_size
from verl_msgrpo.config import MSGRPOConfig
from verl_msgrpo.scales import WeightedScales, weighted_scales

logger = logging.getLogger(__name__)


def ms_grpo_advantages(rewards: torch.Tensor, config: MSGRPOConfig | None = None) -> torch.Tensor:
    """Computes multi-scale group relative advantages of P prompts with G responses each.

    Inside every subgroup S of every scale tau, a response is compared with the subgroup's mean:
    A_i(S) = (r_i - mean(S)) / (std(S) + epsilon). The advantage is the mean of A_i(S) over the
    subgroups of size tau that contain i, averaged over the scales. The scale G alone is GRPO.

    From "Multi-Scale Group Relative Policy Optimization for Large Language Models" (OpenReview
    submission 4604, 2025). Our choices: std has ddof = 1, as in verl's `grpo`; NaN and infinite
    rewards do not count and get 0, their siblings are computed without them; groups with no
    variance (range at most 8 ulp of the largest |reward| in the rewards' dtype), and groups of
    one, get exactly 0.

    Args:
        rewards: (P, G) real tensor on any device. Integers and booleans are exact numbers.
        config: see MSGRPOConfig; None is its defaults.

    Returns:
        (P, G) advantages, of the dtype (for integers the default float dtype) and device of
        `rewards`, computed in float64 on the CPU, without gradient.

    Raises:
        TypeError: rewards are no tensor of real numbers.
        ValueError: wrong shape; or `subgroups` is "all" and a group exceeds `max_terms`.
    """
    _check_rewards(rewards, "(P, G)", 2)
    prompts, group_size = rewards.shape
    group_index = torch.arange(prompts).repeat_interleave(group_size)
    flat = ms_grpo_advantages_by_group(rewards.reshape(-1), group_index, config)
    return flat.reshape(rewards.shape)


def ms_grpo_advantages_by_group(
    rewards: torch.Tensor, group_index: torch.Tensor, config: MSGRPOConfig | None = None
) -> torch.Tensor:
    """As `ms_grpo_advantages`, for groups of any sizes whose rows lie in any order.

    Args:
        rewards: (N,) real tensor, one reward per response.
        group_index: (N,) integer tensor; responses with the same number form a group.
        config: see MSGRPOConfig; None is its defaults.

    Returns:
        (N,) advantages, of dtype and device as above.

    Raises:
        TypeError, ValueError: as above.
    """
    advantages, _ = compare(rewards, group_index, MSGRPOConfig() if config is None else config)
    return advantages


class Comparison(NamedTuple):
    """What was computed for the groups that have something to compare.

    blocks: these groups, by size.
    scales: of each block.
    advantages: of each block, (n, G) float64 in the block's units (see BlockAdvantages).
    takes_all: whether they are averages over all subgroups.
    groups: number of all groups, those with nothing to compare too.
    """

    blocks: list[Block]
    scales: list[WeightedScales]
    advantages: list[torch.Tensor]
    takes_all: bool
    groups: int


def compare(
    rewards: torch.Tensor, group_index: torch.Tensor, config: MSGRPOConfig
) -> tuple[torch.Tensor, Comparison]:
    """As `ms_grpo_advantages_by_group`, with the comparison that its advantages come from.

    Raises:
        TypeError, ValueError: as above.
    """
    _check_rewards(rewards, "(N,)", 1)
    if group_index.shape != rewards.shape:
        raise ValueError(
            f"group_index: expected shape {tuple(rewards.shape)}, got {tuple(group_index.shape)}"
        )
    floating = rewards.dtype.is_floating_point
    flat = rewards.detach().to("cpu", torch.float64)
    dtype = rewards.dtype if floating else torch.float64
    with one_thread():
        blocks, groups = blocks_of_equal_size(flat, group_index.cpu(), dtype)
        scales = [weighted_scales(block.rows.shape[1], config) for block in blocks]
        takes_all = _takes_all(blocks, scales, config)
        over_subgroups = over_all if takes_all else over_diverse
        comparison = Comparison(
            blocks,
            scales,
            [over_subgroups(b, s, config) for b, s in zip(blocks, scales, strict=True)],
            takes_all,
            groups,
        )
        result = torch.zeros_like(flat)
        for block, advantages in zip(blocks, comparison.advantages, strict=True):
            result[block.rows] = in_reward_units(advantages, block, config)
    result_dtype = rewards.dtype if floating else torch.get_default_dtype()
    largest = torch.finfo(result_dtype).max
    return result.clamp(-largest, largest).to(rewards.device, result_dtype), comparison


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """The matrices are small, and the trainer's process shares its cores with busy workers.

    Threads that wait for each other there cost ten times what they save.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _check_rewards(rewards: torch.Tensor, shape: str, dimensions: int) -> None:
    if not isinstance(rewards, torch.Tensor):
        raise TypeError(f"rewards: expected a tensor, got {type(rewards).__name__}")
    if rewards.dtype.is_complex:
        raise TypeError(f"rewards: expected real numbers, got {rewards.dtype}")
    if rewards.dim() != dimensions:
        raise ValueError(f"rewards: expected shape {shape}, got {tuple(rewards.shape)}")


def _takes_all(blocks: list[Block], scales: list[WeightedScales], config: MSGRPOConfig) -> bool:
    """Whether the call is computed over all subgroups, for all its groups alike."""
    if config.subgroups == "diverse":
        return False
    if config.normalize_by_std is False:
        return True  # a closed form: nothing to enumerate
    for block, block_scales in zip(blocks, scales, strict=True):
        for pattern in block.patterns:
            terms, allowed = _terms_and_budget(pattern, block_scales, config)
            if terms <= allowed:
                continue
            if config.subgroups == "auto":
                _log_choice("diverse")
                return False
            raise ValueError(
                f"ms_grpo.max_terms: a group of {block.rows.shape[1]} rewards has {terms} "
                f"different subgroups, allowed are {allowed}; set subgroups to auto or diverse, "
                f"or max_terms up to {most_terms(len(pattern))}"
            )
    if config.subgroups == "auto" and blocks:
        _log_choice("all")
    return True


def _terms_and_budget(
    counts: tuple[int, ...], scales: WeightedScales, config: MSGRPOConfig
) -> tuple[int, int]:
    """Terms of a group whose distinct rewards occur `counts` times, and how many are allowed."""
    terms = count_terms(counts, tuple(scale for scale, _ in scales))
    return terms, min(config.max_terms, most_terms(len(counts)))


@functools.cache
def _log_choice(choice: str) -> None:
    """Once per choice and process. That it is no longer exact is what nobody should miss."""
    if choice == "all":
        logger.info('ms_grpo.subgroups: "auto" takes "all"')
    else:
        logger.warning(
            'ms_grpo.subgroups: "auto" takes "diverse", a few subgroups per scale, because a group '
            "has more different subgroups than ms_grpo.max_terms allows"
        )
