"""What a training run achieved, in numbers that can be averaged over bandits."""

from typing import NamedTuple

import torch

from verl_msgrpo.analysis.bandits import Bandits


class Scores(NamedTuple):
    """One number per learning rate and bandit, (L, B) float64 each.

    The unit is the mean over the bandits of what could be gained: from the mean reward of the
    uniform policy, 0, to that of the best arm, 1.

    final: of the policy at the end.
    area: mean over the policies after each step, which counts speed too.
    stuck: 1 where less than half of what this bandit offers was gained at the end, else 0.
    """

    final: torch.Tensor
    area: torch.Tensor
    stuck: torch.Tensor


def scores_of(values: torch.Tensor, bandits: Bandits) -> Scores:
    """Scores the values (steps + 1, L, B) of a `Training`."""
    gained = values[1:] - values[0]
    attainable = bandits.expected.amax(dim=1) - bandits.expected.mean(dim=1)
    unit = attainable.mean()
    stuck = gained[-1] < attainable / 2
    return Scores(gained[-1] / unit, gained.mean(dim=0) / unit, stuck.double())
