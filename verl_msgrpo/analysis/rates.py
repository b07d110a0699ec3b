"""Learning rates: comparable grids for all methods, and the best of a grid."""

import numpy as np
import torch

from verl_msgrpo.analysis.bandits import Bandits, draw_noise, pull
from verl_msgrpo.estimator.config import MSGRPOConfig

GROUPS = 2000


def rate_unit(bandits: Bandits, config: MSGRPOConfig, group_size: int, seed: int) -> float:
    """The learning rate that moves about as far as a rate of 1 does for advantages without unit.

    Args:
        bandits: of the problem; groups are drawn from their uniform policies.
        config: of the method.
        group_size, seed: of the groups.

    Returns:
        1 where the std is divided out; else 1 / the median std of a group with signal.
    """
    if config.normalize_by_std is not False:
        return 1.0
    generator = torch.Generator().manual_seed(seed)
    runs, arms = bandits.quality.shape
    repeats = -(-GROUPS // runs)
    chosen = torch.randint(arms, (repeats, runs, group_size), generator=generator)
    rng = np.random.default_rng(seed)
    std = pull(bandits, chosen, draw_noise(bandits, group_size, rng)).std(dim=2)
    return 1 / std[std > 0].median().item()


def best_rate(rates: torch.Tensor, means: torch.Tensor) -> float:
    """The best learning rate, from mean scores on a grid of them.

    A polynomial of degree 4 in the logarithm of the rate is fitted to all points, and the place of
    its maximum taken, to a twentieth of an octave: neither the luck of one point nor the spacing
    of the grid decides, so that two methods that differ by a factor get rates that do.

    Args:
        rates: (L,) ascending, L >= 5.
        means: (L,).

    Returns:
        a rate from the first to the last; an end of the grid if the scores rise towards it.
    """
    octaves = rates.double().log2().numpy()
    curve = np.polynomial.Polynomial.fit(octaves, means.double().numpy(), 4)
    fine = np.linspace(octaves[0], octaves[-1], 1 + round(20 * (octaves[-1] - octaves[0])))
    return float(2 ** fine[curve(fine).argmax()])
