"""How large the error is that a choice of few subgroups adds, without computing all of them.

A design (see diverse.py) says nothing of which response is which: with the responses relabelled at
random it is as good, and over all relabellings its advantages A average to A', those over all
subgroups of the same scales. So, for two relabellings, A and A'' are independent estimates of A',
and |A - A''|^2 / 2 has the mean of |A - A'|^2. What the trainer computes is one of them; the other
is computed here, for a few groups.
"""

import functools
from typing import NamedTuple

import numpy as np
import torch

from verl_msgrpo.estimator.config import MSGRPOConfig
from verl_msgrpo.estimator.diverse import subgroup_design
from verl_msgrpo.estimator.exact import Floats, Ints
from verl_msgrpo.estimator.groups import Block
from verl_msgrpo.estimator.scales import WeightedScales

RELABELLINGS = 32  # at most, in each block of groups of one size
VALUES_AT_ONCE = 2**18  # of the (relabellings, members of all subgroups) intermediate


class FlatDesign(NamedTuple):
    """The subgroups of all scales one after the other; they have L members together.

    members: (L,) numbers of responses.
    starts, sizes: (K,), where each subgroup begins, and its size.
    share: (L,), weight of the scale / number of its subgroups that the response is in.
    by_member: (L,), the places of each response, one response after the other.
    member_starts: (G,), where each response's begin in `by_member`.
    """

    members: Ints
    starts: Ints
    sizes: Ints
    share: Floats
    by_member: Ints
    member_starts: Ints


def design_errors(
    block: Block, ours: torch.Tensor, scales: WeightedScales, config: MSGRPOConfig
) -> tuple[float, float]:
    """Estimates mean squares of the error of advantages over few subgroups, and of themselves.

    Args:
        block: n groups of G responses.
        ours: (n, G) float64, their advantages over the designs of `scales`, in the block's units.
        scales, config: what they were computed with.

    Returns:
        the mean over the groups of |A - A'|^2 / G, and of |A|^2 / G.
    """
    groups, size = ours.shape
    design = _flat_design(size, scales, config)
    pairs = max(1, min(RELABELLINGS, VALUES_AT_ONCE // len(design.members)))
    # Spread over the block; every group several times where there are few.
    chosen = np.arange(pairs) * groups // pairs
    labels = _relabellings(size)[:, :pairs]
    epsilon = None
    if config.normalize_by_std is not False:
        epsilon = block.in_units(config.epsilon).numpy()[chosen]
    again = flat_advantages(block.values.numpy()[chosen, labels], design, epsilon)
    before = ours.numpy()[chosen, labels]
    return _mean_square(before - again) / 2, (_mean_square(before) + _mean_square(again)) / 2


def _mean_square(numbers: Floats) -> float:
    return float(np.vdot(numbers, numbers)) / numbers.size


def flat_advantages(values: Floats, design: FlatDesign, epsilon: Floats | None) -> Floats:
    """As `diverse.advantages_over_design`, all scales at once: quicker for few groups.

    Args:
        values: (G, n), finite, a column for each group.
        design: of G responses.
        epsilon: (n,), added to the std; None: do not divide.

    Returns:
        (G, n).
    """
    sizes = design.sizes[:, None]
    inside = values[design.members]
    inside -= inside[design.starts].repeat(design.sizes, axis=0)  # the mean of equals is now exact
    mean = np.add.reduceat(inside, design.starts) / sizes
    inside -= mean.repeat(design.sizes, axis=0)
    if epsilon is not None:
        std = np.sqrt(np.add.reduceat(np.square(inside), design.starts) / (sizes - 1))
        inside /= np.maximum(std + epsilon, 1e-200).repeat(design.sizes, axis=0)
    inside *= design.share[:, None]
    return np.add.reduceat(inside[design.by_member], design.member_starts)


@functools.lru_cache(maxsize=64)
def _flat_design(group_size: int, scales: WeightedScales, config: MSGRPOConfig) -> FlatDesign:
    few = config.subgroups_per_scale
    assert few is not None  # MSGRPOConfig has put the default in
    designs = [subgroup_design(group_size, scale, few, config.seed).numpy() for scale, _ in scales]
    members = np.concatenate([design.ravel() for design in designs])
    sizes = np.concatenate([np.full(len(design), design.shape[1]) for design in designs])
    share = [
        weight / np.bincount(design.ravel(), minlength=group_size)[design.ravel()]
        for design, (_, weight) in zip(designs, scales, strict=True)
    ]
    times = np.bincount(members, minlength=group_size)
    return FlatDesign(
        members=members,
        starts=sizes.cumsum() - sizes,
        sizes=sizes,
        share=np.concatenate(share),
        by_member=members.argsort(kind="stable"),
        member_starts=times.cumsum() - times,
    )


@functools.lru_cache(maxsize=64)
def _relabellings(group_size: int) -> Ints:
    """(G, RELABELLINGS) permutations, one a column, the same ones everywhere."""
    rng = np.random.default_rng(group_size)
    return rng.random((group_size, RELABELLINGS)).argsort(axis=0)
