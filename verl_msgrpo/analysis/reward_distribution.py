"""Distributions of i.i.d. rewards, known by how to draw from them."""

from collections.abc import Callable
from typing import NamedTuple

import torch


class RewardDistribution(NamedTuple):
    """What is needed to compare an advantage with what it estimates.

    draw: (shape, generator) -> float64 rewards of that shape.
    mean, std: of the distribution (ddof does not come in); finite, std > 0.
    """

    draw: Callable[[tuple[int, int], torch.Generator], torch.Tensor]
    mean: float
    std: float

    def target(self, rewards: torch.Tensor, divided: bool) -> torch.Tensor:
        """What the advantage of a reward estimates: r - E r, `divided` by the std or not."""
        return (rewards - self.mean) / (self.std if divided else 1.0)
