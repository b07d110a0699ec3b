"""Rewards in, advantages out.

The way of the data: rows -> groups of one size (groups.py) -> subgroups, all of them (exact.py,
exact_tiles.py) or a few (diverse.py) -> the advantages of each group -> rows.
"""

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import NamedTuple

import torch

from verl_msgrpo.common.once import say_once
from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.estimator.diverse import advantages_over_design, subgroup_design
from verl_msgrpo.estimator.exact import (
    TermTable,
    advantages_over_table,
    count_terms,
    most_terms,
    term_table,
    undivided_advantages,
)
from verl_msgrpo.estimator.exact_tiles import TermTiles, advantages_over_tiles, term_tiles
from verl_msgrpo.estimator.groups import Block, blocks_of_equal_size
from verl_msgrpo.estimator.scales import WeightedScales, weighted_scales

logger = logging.getLogger(__name__)

CACHED_TERMS = 2**16  # plans of more terms are made anew instead of kept
SMALL_TABLE = 2**16  # terms times pairs of values, and pairs squared; above it tiles are quicker


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
        TypeError: rewards are not a tensor of real numbers.
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
    config = MSGRPOConfig() if config is None else config
    advantages, _ = compute_advantages(rewards, group_index, config)
    return advantages


class Workings(NamedTuple):
    """What the advantages of a call were made from: its groups with a signal.

    blocks: these groups, by size.
    scales: of each block.
    advantages: of each block, (n, G) float64; in the block's units where the std is not divided
        out, which keeps every intermediate result in range. Divided by the std they have no unit.
    takes_all: whether they are averages over all subgroups.
    groups: number of all groups, those without a signal too.
    """

    blocks: list[Block]
    scales: list[WeightedScales]
    advantages: list[torch.Tensor]
    takes_all: bool
    groups: int


def compute_advantages(
    rewards: torch.Tensor, group_index: torch.Tensor, config: MSGRPOConfig
) -> tuple[torch.Tensor, Workings]:
    """As `ms_grpo_advantages_by_group`, with the workings, for those who explain the result.

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
        takes_all = takes_all_subgroups(blocks, scales, config)
        of_block = _over_all_subgroups if takes_all else _over_chosen_subgroups
        advantages = [of_block(b, s, config) for b, s in zip(blocks, scales, strict=True)]
        result = torch.zeros_like(flat)
        for block, of_groups in zip(blocks, advantages, strict=True):
            result[block.rows] = in_reward_units(of_groups, block, config)
    result_dtype = rewards.dtype if floating else torch.get_default_dtype()
    largest = torch.finfo(result_dtype).max
    result = result.clamp(-largest, largest).to(rewards.device, result_dtype)
    return result, Workings(blocks, scales, advantages, takes_all, groups)


def in_reward_units(advantages: torch.Tensor, block: Block, config: MSGRPOConfig) -> torch.Tensor:
    """Advantages of a block, one row per group, as they are added to a loss."""
    return block.in_rewards(advantages) if config.normalize_by_std is False else advantages


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


def takes_all_subgroups(
    blocks: list[Block], scales: list[WeightedScales], config: MSGRPOConfig
) -> bool:
    """Whether a call is computed over all subgroups, for all its groups alike.

    Says so once where "auto" decides: that the result is no longer exact is what nobody should
    miss.

    Raises:
        ValueError: `subgroups` is "all" and a group exceeds `max_terms`.
    """
    if config.subgroups == "diverse":
        return False
    if config.normalize_by_std is False:
        return True  # a closed form: nothing to enumerate
    for block, block_scales in zip(blocks, scales, strict=True):
        for pattern in block.patterns:
            terms, allowed = terms_and_budget(pattern, block_scales, config)
            if terms <= allowed:
                continue
            if config.subgroups == "auto":
                say_once(
                    logger,
                    logging.WARNING,
                    'ms_grpo.subgroups: "auto" takes "diverse", a few subgroups per scale, because '
                    "a group has more different subgroups than ms_grpo.max_terms allows",
                )
                return False
            raise ValueError(
                f"ms_grpo.max_terms: a group of {block.rows.shape[1]} rewards has {terms} "
                f"different subgroups, allowed are {allowed}; set subgroups to auto or diverse, "
                f"or max_terms up to {most_terms(len(pattern))}"
            )
    if config.subgroups == "auto" and blocks:
        say_once(logger, logging.INFO, 'ms_grpo.subgroups: "auto" takes "all"')
    return True


def terms_and_budget(
    counts: tuple[int, ...], scales: WeightedScales, config: MSGRPOConfig
) -> tuple[int, int]:
    """Terms of a group whose distinct rewards occur `counts` times, and how many are allowed."""
    terms = count_terms(counts, tuple(scale for scale, _ in scales))
    return terms, min(config.max_terms, most_terms(len(counts)))


def _over_all_subgroups(block: Block, scales: WeightedScales, config: MSGRPOConfig) -> torch.Tensor:
    """(n, G) float64 advantages of a block."""
    if config.normalize_by_std is False:
        return undivided_advantages(block.values, scales)
    epsilon = block.in_units(config.epsilon)
    advantages = torch.empty_like(block.values)
    for counts, (groups, values, place) in block.patterns.items():
        per_value = advantages_of_values(values, counts, scales, epsilon[groups])
        advantages[groups] = per_value.gather(1, place)
    return advantages


def _over_chosen_subgroups(
    block: Block, scales: WeightedScales, config: MSGRPOConfig
) -> torch.Tensor:
    """(n, G) float64 advantages of a block."""
    size = block.values.shape[1]
    chosen = [
        (subgroup_design(size, scale, config.subgroups_per_scale, config.seed), weight)
        for scale, weight in scales
    ]
    epsilon = None if config.normalize_by_std is False else block.in_units(config.epsilon)
    return advantages_over_design(block.values, chosen, epsilon)


def advantages_of_values(
    values: torch.Tensor, counts: tuple[int, ...], scales: WeightedScales, epsilon: torch.Tensor
) -> torch.Tensor:
    """Advantage of each distinct value, divided by the std, over all subgroups.

    Groups must share their `counts`; those sorted alike share one cached plan.

    Args:
        values: (n, V) float64, V >= 2 distinct finite rewards of each of n groups, in any order,
            with a range near 1.
        counts: V numbers of members, of every group.
        scales: pairs (tau, weight), 2 <= tau <= sum of counts.
        epsilon: (n,) float64, 0 .. 1e300, in units of `values`.

    Returns:
        (n, V) float64, the A_v of exact.py.
    """
    terms = count_terms(counts, tuple(scale for scale, _ in scales))
    plan = _cached_plan(counts, scales) if terms <= CACHED_TERMS else term_tiles(counts, scales)
    if isinstance(plan, TermTable):
        of_members = advantages_over_table(values, plan, epsilon)
    else:
        of_members = advantages_over_tiles(values, plan, epsilon)
    return of_members / torch.tensor(counts, dtype=torch.float64)


@functools.lru_cache(maxsize=256)
def _cached_plan(counts: tuple[int, ...], scales: WeightedScales) -> TermTable | TermTiles:
    terms = count_terms(counts, tuple(scale for scale, _ in scales))
    pairs = len(counts) * (len(counts) - 1) // 2
    if pairs * max(terms, pairs) <= SMALL_TABLE:
        return term_table(counts, scales)
    return term_tiles(counts, scales)


def _check_rewards(rewards: torch.Tensor, shape: str, dimensions: int) -> None:
    if not isinstance(rewards, torch.Tensor):
        raise TypeError(f"rewards: expected a tensor, got {type(rewards).__name__}")
    if rewards.dtype.is_complex:
        raise TypeError(f"rewards: expected real numbers, got {rewards.dtype}")
    if rewards.dim() != dimensions:
        raise ValueError(f"rewards: expected shape {shape}, got {tuple(rewards.shape)}")
