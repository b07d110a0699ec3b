"""What MS-GRPO did to the rewards of a batch, in a few numbers."""

import math
from collections.abc import Iterator

import torch

from verl_msgrpo.advantages import Comparison, compare, one_thread, terms_and_budget
from verl_msgrpo.block_advantages import in_reward_units, over_all, within_group
from verl_msgrpo.blocks import Block, select_groups
from verl_msgrpo.config import MSGRPOConfig
from verl_msgrpo.designs import design_size
from verl_msgrpo.scales import WeightedScales

# Of each size, this many groups are computed exactly too, to see what few subgroups add; fewer
# where that takes more terms than these, but one at least.
NOISE_GROUPS = 16
NOISE_TERMS = 2**12
_ROUNDING = 1e-9  # an advantage below this share of the group's largest has no sign


def ms_grpo_advantages_and_metrics(
    rewards: torch.Tensor, group_index: torch.Tensor, config: MSGRPOConfig | None = None
) -> tuple[torch.Tensor, dict[str, float]]:
    """As `ms_grpo_advantages_by_group`, with metrics of the groups.

    A group has a *signal* where its finite rewards are not all equal. All but the first two are
    means over the groups with signal, and missing where there is none. With A the advantages of a
    group and B what GRPO gives it (Dr. GRPO where the std is not divided out), and c = A.B / B.B:

        groups              number of groups
        homogeneous_share   share of them without signal
        scale               c: A is c times GRPO, as nearly as that goes (least squares)
        correction          |A - c B| / |A|: what is no rescaled GRPO; 0 for binary rewards
        sign_flips          share of responses whose advantage has not GRPO's sign
        distinct_rewards    number of different rewards in a group
        subgroups           number of subgroups that were averaged over in a group
        exact_share         share of groups where these are all subgroups
        design_noise        |A - A'| / |A'| with A' over all subgroups of the same scales: what a
                            choice of few subgroups adds (over a few groups, 16 of each size at
                            most; missing where none of these fits `max_terms`)
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
    advantages, comparison = compare(rewards, group_index, config)
    with one_thread():
        return advantages, _metrics(comparison, config)


def _metrics(comparison: Comparison, config: MSGRPOConfig) -> dict[str, float]:
    groups = comparison.groups
    metrics = {"groups": float(groups)}
    with_signal = sum(len(block.rows) for block in comparison.blocks)
    if groups:
        metrics["homogeneous_share"] = 1 - with_signal / groups
    if not with_signal:
        return metrics
    parts = list(_parts(comparison, config))
    for name in parts[0]:
        metrics[name] = torch.cat([part[name] for part in parts]).mean().item()
    noise = [] if comparison.takes_all else list(_design_noise(comparison, config))
    if comparison.takes_all:
        metrics["design_noise"] = 0.0
    elif noise:
        metrics["design_noise"] = torch.cat(noise).mean().item()
    return metrics


def _parts(comparison: Comparison, config: MSGRPOConfig) -> Iterator[dict[str, torch.Tensor]]:
    """Per block, the metrics of its groups, (n,) float64 each."""
    for block, scales, ours in zip(
        comparison.blocks, comparison.scales, comparison.advantages, strict=True
    ):
        grpo = within_group(block, config)
        unit_ours, size_ours = _unit(ours)
        unit_grpo, size_grpo = _unit(grpo)
        scale = (unit_ours * unit_grpo).sum(dim=1) / unit_grpo.square().sum(dim=1)
        rest = torch.linalg.vector_norm(unit_ours - scale[:, None] * unit_grpo, dim=1)
        groups, size = ours.shape
        taken, possible = _subgroups(size, scales, comparison.takes_all, config)
        distinct = torch.empty(groups, dtype=torch.float64)
        for counts, pattern in block.patterns.items():
            distinct[pattern.groups] = len(counts)
        yield {
            "scale": scale * size_ours / size_grpo,
            "correction": rest / torch.linalg.vector_norm(unit_ours, dim=1),
            "sign_flips": (_signs(unit_ours) * _signs(unit_grpo) < 0).double().mean(dim=1),
            "distinct_rewards": distinct,
            "subgroups": torch.full((groups,), taken, dtype=torch.float64),
            "exact_share": torch.full((groups,), float(taken == possible), dtype=torch.float64),
            "adv_abs_mean": _mean_size(ours, block, config),
            "grpo_adv_abs_mean": _mean_size(grpo, block, config),
        }


def _subgroups(
    size: int, scales: WeightedScales, takes_all: bool, config: MSGRPOConfig
) -> tuple[float, float]:
    """How many subgroups a group of this size was averaged over, and how many there are."""
    possible = sum(float(math.comb(size, scale)) for scale, _ in scales)
    if takes_all:
        return possible, possible
    few = config.subgroups_per_scale
    assert few is not None  # MSGRPOConfig has put the default in
    return float(sum(design_size(size, scale, few) for scale, _ in scales)), possible


def _unit(advantages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each group's advantages divided by its largest |advantage|, (n, G), and that, (n,)."""
    largest = advantages.abs().amax(dim=1)
    return advantages / largest[:, None], largest


def _signs(unit_advantages: torch.Tensor) -> torch.Tensor:
    """-1, 0 or 1 for each; 0 where an advantage is nothing but rounding."""
    return torch.where(unit_advantages.abs() > _ROUNDING, unit_advantages.sign(), 0.0)


def _mean_size(advantages: torch.Tensor, block: Block, config: MSGRPOConfig) -> torch.Tensor:
    """(n,) float64, finite."""
    sizes = in_reward_units(advantages.abs().mean(dim=1, keepdim=True), block, config)
    return sizes[:, 0].clamp(max=torch.finfo(torch.float32).max)


def _design_noise(comparison: Comparison, config: MSGRPOConfig) -> Iterator[torch.Tensor]:
    """Per block, relative errors of some of its groups against all subgroups, float64."""
    for block, scales, ours in zip(
        comparison.blocks, comparison.scales, comparison.advantages, strict=True
    ):
        chosen = _affordable(block, scales, config)
        if not len(chosen):
            continue
        exact, size = _unit(over_all(select_groups(block, chosen), scales, config))
        error = torch.linalg.vector_norm(ours[chosen] / size[:, None] - exact, dim=1)
        yield error / torch.linalg.vector_norm(exact, dim=1)


def _affordable(block: Block, scales: WeightedScales, config: MSGRPOConfig) -> torch.Tensor:
    """(m,) int64: groups spread over a block whose exact advantages cost little, 16 at most."""
    groups = len(block.rows)
    spread = torch.arange(0, groups, -(-groups // NOISE_GROUPS))
    if config.normalize_by_std is False:
        return spread
    left = NOISE_TERMS
    chosen: list[int] = []
    for counts, pattern in block.patterns.items():
        terms, budget = terms_and_budget(counts, scales, config)
        for group in set(pattern.groups).intersection(spread.tolist()):
            if terms <= budget and (terms <= left or not chosen):
                chosen.append(group)
                left -= terms
    return torch.tensor(sorted(chosen), dtype=torch.int64)
