"""What MS-GRPO did to the rewards of a batch, in a few numbers.

A leaf: it reads the workings of a call, and nothing of the estimator reads it.
"""

import math

import numpy as np
import torch

from verl_msgrpo.estimator.advantages import (
    Workings,
    compute_advantages,
    in_reward_units,
    one_thread,
)
from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.estimator.design_noise import Floats, design_errors
from verl_msgrpo.estimator.diverse import design_size
from verl_msgrpo.estimator.groups import Block
from verl_msgrpo.estimator.scales import WeightedScales

MOST_SUBGROUPS = 1e300  # more are counted as so many: 2**1024 is not a float
_ROUNDING = 1e-9  # an advantage below this share of the group's largest has no sign


def ms_grpo_advantages_and_metrics(
    rewards: torch.Tensor, group_index: torch.Tensor, config: MSGRPOConfig | None = None
) -> tuple[torch.Tensor, dict[str, float]]:
    """As `ms_grpo_advantages_by_group`, with metrics of the groups.

    A group has a *signal* where its finite rewards are not all equal. All but the first three are
    means over the groups with signal, and missing where there is none. With A the advantages of a
    group and B what GRPO gives it (Dr. GRPO where the std is not divided out), and c = A.B / B.B:

        groups              number of groups
        homogeneous_share   share of them without signal
        nonfinite_share     share of rewards that are NaN or infinite and do not count
        scale               c: A is c times GRPO, as nearly as that goes (least squares); 0 where A
                            is 0, as all of few chosen subgroups may be without variance
        correction          |A - c B| / |A|: the share that is not GRPO rescaled; 0 for binary
                            rewards, and where A is 0
        sign_flips          share of responses whose advantage has the opposite sign of GRPO's
        distinct_rewards    number of different rewards in a group
        subgroups           number of subgroups that were averaged over in a group, 1e300 at most
        exact_share         share of groups where these are all subgroups
        design_noise        |A - A'| / |A| with A' over all subgroups of the same scales: what a
                            choice of few subgroups adds; both in root mean square, estimated from
                            32 groups of each size (see design_noise.py); 0 where all are taken
        adv_abs_mean        mean of |A| over the responses of a group
        grpo_adv_abs_mean   mean of |B|

    Args:
        rewards, group_index, config: as for `ms_grpo_advantages_by_group`.

    Returns:
        (N,) advantages and the metrics, all finite.

    Raises:
        TypeError, ValueError: as for `ms_grpo_advantages_by_group`.
    """
    config = MSGRPOConfig() if config is None else config
    advantages, workings = compute_advantages(rewards, group_index, config)
    metrics = metrics_of(workings, config)
    if len(rewards):
        metrics["nonfinite_share"] = 1 - int(torch.isfinite(rewards).sum()) / len(rewards)
    return advantages, metrics


def metrics_of(workings: Workings, config: MSGRPOConfig) -> dict[str, float]:
    """The metrics above that are about groups, of a call with `config`."""
    with one_thread():
        return _metrics(workings, config)


def _metrics(workings: Workings, config: MSGRPOConfig) -> dict[str, float]:
    groups = workings.groups
    metrics = {"groups": float(groups)}
    with_signal = sum(len(block.rows) for block in workings.blocks)
    if groups:
        metrics["homogeneous_share"] = 1 - with_signal / groups
    if not with_signal:
        return metrics
    blocks = zip(workings.blocks, workings.scales, workings.advantages, strict=True)
    sums = [_sums(*block, workings.takes_all, config) for block in blocks]
    for name in sums[0]:
        metrics[name] = sum(block[name] for block in sums) / with_signal
    metrics["design_noise"] = _design_noise(workings, config)
    return metrics


def _sums(
    block: Block,
    scales: WeightedScales,
    advantages: torch.Tensor,
    takes_all: bool,
    config: MSGRPOConfig,
) -> dict[str, float]:
    """The metrics of the groups of a block, each summed over them.

    With numpy, whose calls cost less than those of torch where matrices are as small as here, and
    with a column for each group, as sums over a few neighbours would be slow.
    """
    groups, size = advantages.shape
    ours = np.ascontiguousarray(advantages.numpy().T)
    grpo = _within_group(block, config)
    size_ours, size_grpo = np.abs(ours), np.abs(grpo)
    largest_ours, largest_grpo = size_ours.max(axis=0), size_grpo.max(axis=0)
    # In units of the largest, whose squares neither overflow nor underflow.
    unit_ours, unit_grpo = ours / _not_zero(largest_ours), grpo / largest_grpo
    products = unit_ours * unit_grpo
    scale = products.sum(axis=0) / np.square(unit_grpo).sum(axis=0)
    rest = unit_ours - scale * unit_grpo
    of_ours = _not_zero(np.square(unit_ours).sum(axis=0))
    correction = np.sqrt(np.square(rest).sum(axis=0) / of_ours)
    flipped = (products < 0) & (size_ours > _ROUNDING * largest_ours)
    flipped &= size_grpo > _ROUNDING * largest_grpo
    taken, possible = _subgroups(size, scales, takes_all, config)
    distinct = sum(len(counts) * len(same.groups) for counts, same in block.patterns.items())
    return {
        "scale": float((scale * largest_ours / largest_grpo).sum()),
        "correction": float(correction.sum()),
        "sign_flips": float(np.count_nonzero(flipped) / size),
        "distinct_rewards": float(distinct),
        "subgroups": groups * taken,
        "exact_share": float(groups * (taken == possible)),
        "adv_abs_mean": _sum_of_sizes(size_ours, block, config),
        "grpo_adv_abs_mean": _sum_of_sizes(size_grpo, block, config),
    }


def _not_zero(sizes: Floats) -> Floats:
    """Sizes to divide by, 1 in place of 0."""
    return np.where(sizes > 0, sizes, 1.0)


def _within_group(block: Block, config: MSGRPOConfig) -> Floats:
    """(G, n) advantages of GRPO, or without the std division of Dr. GRPO, in the block's units."""
    values = np.ascontiguousarray(block.values.numpy().T)
    deviations = values - values.sum(axis=0) / len(values)
    if config.normalize_by_std is False:
        return deviations
    variance = np.square(deviations).sum(axis=0) / (len(values) - 1)
    return deviations / (np.sqrt(variance) + block.in_units(config.epsilon).numpy())


def _subgroups(
    size: int, scales: WeightedScales, takes_all: bool, config: MSGRPOConfig
) -> tuple[float, float]:
    """How many subgroups a group of this size was averaged over, and how many there are."""
    possible = min(sum(_combinations(size, scale) for scale, _ in scales), MOST_SUBGROUPS)
    if takes_all:
        return possible, possible
    few = config.subgroups_per_scale
    assert few is not None  # MSGRPOConfig has put the default in
    return float(sum(design_size(size, scale, few) for scale, _ in scales)), possible


def _combinations(size: int, scale: int) -> float:
    """Number of subsets, exact up to a billion, MOST_SUBGROUPS at most."""
    log = math.lgamma(size + 1) - math.lgamma(scale + 1) - math.lgamma(size - scale + 1)
    return float(round(math.exp(log))) if log < math.log(MOST_SUBGROUPS) else MOST_SUBGROUPS


def _sum_of_sizes(sizes: Floats, block: Block, config: MSGRPOConfig) -> float:
    """Sum over the groups of the mean of the (G, n) sizes, finite."""
    means = torch.from_numpy(sizes.sum(axis=0) / len(sizes))[:, None]
    in_units = in_reward_units(means, block, config).numpy()
    return float(np.minimum(in_units, np.finfo(np.float32).max).sum())


def _design_noise(workings: Workings, config: MSGRPOConfig) -> float:
    if workings.takes_all:
        return 0.0
    error = size = 0.0
    for block, scales, ours in zip(
        workings.blocks, workings.scales, workings.advantages, strict=True
    ):
        taken, possible = _subgroups(block.values.shape[1], scales, False, config)
        block_error, block_size = design_errors(block, ours, scales, config)
        error += len(ours) * (block_error if taken < possible else 0.0)
        size += len(ours) * block_size
    return math.sqrt(error / size) if size else 0.0  # squares of tiny advantages underflow
