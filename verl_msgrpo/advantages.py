"""Multi-Scale GRPO: from the rewards of groups of responses to their advantages."""

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import NamedTuple

import torch

from verl_msgrpo.all_subgroups import (
    advantages_over_all,
    count_terms,
    most_terms,
    undivided_advantages,
)
from verl_msgrpo.config import MSGRPOConfig
from verl_msgrpo.designs import subgroup_design
from verl_msgrpo.diverse_subgroups import advantages_over
from verl_msgrpo.reward_values import (
    has_variance,
    merge_ties,
    times_power_of_two,
    unit_magnitude,
    unit_range,
)
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
    config = MSGRPOConfig() if config is None else config
    _check_rewards(rewards, "(N,)", 1)
    if group_index.shape != rewards.shape:
        raise ValueError(
            f"group_index: expected shape {tuple(rewards.shape)}, got {tuple(group_index.shape)}"
        )
    with _one_thread():
        return _advantages(rewards.detach(), group_index.cpu(), config)


def _advantages(
    rewards: torch.Tensor, group_index: torch.Tensor, config: MSGRPOConfig
) -> torch.Tensor:
    floating = rewards.dtype.is_floating_point
    flat = rewards.to("cpu", torch.float64)
    blocks = _blocks(flat, group_index, rewards.dtype if floating else torch.float64)
    scales = [weighted_scales(block.rows.shape[1], config) for block in blocks]
    over_subgroups = _over_all if _takes_all(blocks, scales, config) else _over_diverse
    result = torch.zeros_like(flat)
    for block, block_scales in zip(blocks, scales, strict=True):
        result[block.rows] = over_subgroups(block, block_scales, config)
    result_dtype = rewards.dtype if floating else torch.get_default_dtype()
    largest = torch.finfo(result_dtype).max
    return result.clamp(-largest, largest).to(rewards.device, result_dtype)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
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


class _Pattern(NamedTuple):
    """The groups of a block whose distinct values occur equally often.

    groups: n numbers of groups within the block.
    values: (n, V) float64, the distinct values.
    place: (n, G) int64, which of them each response has.
    """

    groups: list[int]
    values: torch.Tensor
    place: torch.Tensor


class _Block(NamedTuple):
    """The groups of one size that have something to compare.

    rows: (n, G) int64, where the rewards of each group lie.
    values: (n, G) float64, rewards in units of 2**exponent: ties equal, range in [0.5, 1).
    exponent: (n, 1) int32.
    patterns: numbers of members that have each distinct value -> the groups like that.
    """

    rows: torch.Tensor
    values: torch.Tensor
    exponent: torch.Tensor
    patterns: dict[tuple[int, ...], _Pattern]


def _blocks(flat: torch.Tensor, group_index: torch.Tensor, dtype: torch.dtype) -> list[_Block]:
    """Sorts the finite rewards into blocks of equally large groups; leaves out what gets 0."""
    counted = flat.isfinite().nonzero()[:, 0]
    _, group, size = group_index[counted].unique(return_inverse=True, return_counts=True)
    by_group = counted[group.argsort(stable=True)]
    first = size.cumsum(0) - size
    blocks = []
    for group_size in size.unique().tolist():
        if group_size < 2:
            continue
        rows = by_group[first[size == group_size, None] + torch.arange(group_size)]
        values, magnitude = unit_magnitude(flat[rows])
        varied = has_variance(values, magnitude, dtype)
        if varied.any():
            values, spread = unit_range(merge_ties(values[varied], dtype))
            exponent = magnitude[varied] + spread
            blocks.append(_Block(rows[varied], values, exponent, _patterns(values)))
    return blocks


def _patterns(values: torch.Tensor) -> dict[tuple[int, ...], _Pattern]:
    """Finds the distinct values of each group, the most frequent first, and who has them."""
    ascending, order = values.sort(dim=1)
    rank = torch.zeros_like(order)
    rank[:, 1:] = (ascending.diff(dim=1) > 0).cumsum(dim=1)
    counts = torch.zeros_like(order).scatter_add_(1, rank, torch.ones_like(rank))
    counts, column = counts.sort(dim=1, descending=True, stable=True)
    distinct = torch.zeros_like(values).scatter_(1, rank, ascending).gather(1, column)
    place_of_rank = column.argsort(dim=1)  # the inverse permutation
    place = torch.empty_like(order).scatter_(1, order, place_of_rank.gather(1, rank))
    groups: dict[bytes, list[int]] = {}
    for number, row in enumerate(counts.to(torch.int32).numpy()):
        groups.setdefault(row.tobytes(), []).append(number)
    patterns = {}
    for alike in groups.values():
        pattern = tuple(count for count in counts[alike[0]].tolist() if count)
        patterns[pattern] = _Pattern(alike, distinct[alike, : len(pattern)], place[alike])
    return patterns


def _takes_all(blocks: list[_Block], scales: list[WeightedScales], config: MSGRPOConfig) -> bool:
    """Whether the call is computed over all subgroups, for all its groups alike."""
    if config.subgroups == "diverse":
        return False
    if config.normalize_by_std is False:
        return True  # a closed form: nothing to enumerate
    for block, block_scales in zip(blocks, scales, strict=True):
        taus = tuple(scale for scale, _ in block_scales)
        for pattern in block.patterns:
            terms = count_terms(pattern, taus)
            allowed = min(config.max_terms, most_terms(len(pattern)))
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


@functools.cache
def _log_choice(choice: str) -> None:
    """Once per choice and process."""
    logger.info('ms_grpo.subgroups: "auto" takes "%s"', choice)


def _over_all(block: _Block, scales: WeightedScales, config: MSGRPOConfig) -> torch.Tensor:
    """(n, G) float64 advantages of a block, over all subgroups."""
    if config.normalize_by_std is False:
        return times_power_of_two(undivided_advantages(block.values, scales), block.exponent)
    epsilon = _epsilon(block, config)
    advantages = torch.empty_like(block.values)
    for counts, (groups, values, place) in block.patterns.items():
        per_value = advantages_over_all(values, counts, scales, epsilon[groups])
        advantages[groups] = per_value.gather(1, place)
    return advantages


def _over_diverse(block: _Block, scales: WeightedScales, config: MSGRPOConfig) -> torch.Tensor:
    """(n, G) float64 advantages of a block, over a few subgroups per scale."""
    chosen = [
        (subgroup_design(block.values.shape[1], scale, config.subgroups_per_scale, config.seed), w)
        for scale, w in scales
    ]
    if config.normalize_by_std is False:
        return times_power_of_two(advantages_over(block.values, chosen, None), block.exponent)
    return advantages_over(block.values, chosen, _epsilon(block, config))


def _epsilon(block: _Block, config: MSGRPOConfig) -> torch.Tensor:
    """(n,) float64: epsilon in the units of each group's values."""
    epsilon = torch.full((len(block.values), 1), config.epsilon, dtype=torch.float64)
    return times_power_of_two(epsilon, -block.exponent)[:, 0].clamp(max=1e300)
