"""The factor between MS-GRPO and GRPO where there is nothing else between them."""

import torch

from verl_msgrpo.estimator.exact import log_binomials
from verl_msgrpo.estimator.scales import WeightedScales


def binary_rescaling(group_size: int, scales: WeightedScales) -> torch.Tensor:
    """c of groups with right and wrong responses: MS-GRPO = c * GRPO, over all subgroups.

    A right response of a group with k right ones shares a subgroup of tau with h of the k - 1
    others, h hypergeometric. With a = h + 1 right ones, its subgroup advantage is
    (1 - a / tau) / sqrt(a (tau - a) / (tau (tau - 1))). c is the mean of that over h and tau,
    divided by GRPO's, (1 - k / G) / sqrt(k (G - k) / (G (G - 1))). epsilon is 0, std has ddof = 1.

    Args:
        group_size: G >= 2.
        scales: pairs (tau, weight), see `verl_msgrpo.estimator.scales.weighted_scales`.

    Returns:
        (G - 1,) float64, c for 1 .. G - 1 right responses. Time grows as G^2 times the number of
        scales: some seconds for G = 256 and all scales.
    """
    sizes = torch.tensor([scale for scale, _ in scales])[:, None]
    weights = torch.tensor([weight for _, weight in scales], dtype=torch.float64)
    others = torch.arange(group_size)  # right ones beside the response
    right = others + 1
    spread = (right * (sizes - right)).clamp(min=0) / (sizes * (sizes - 1)).double()
    subgroup = torch.where(right < sizes, (1 - right / sizes.double()) / spread.sqrt(), 0.0)
    factors = torch.empty(group_size - 1, dtype=torch.float64)
    for k in range(1, group_size // 2 + 1):
        chances = hypergeometric(others, group_size - 1, k - 1, sizes - 1)
        ours = weights @ (chances * subgroup).sum(dim=1)
        share = k / group_size
        grpo = (1 - share) / (share * (1 - share) * group_size / (group_size - 1)) ** 0.5
        # Right and wrong may trade places: the advantages only change their sign.
        factors[k - 1] = factors[group_size - k - 1] = ours / grpo
    return factors


def mean_rescaling(p: float, group_size: int, scales: WeightedScales) -> float:
    """Mean c over the groups with signal, if each response is right with probability p, 0 < p < 1.

    Args:
        group_size, scales: as for `binary_rescaling`.
    """
    right = torch.arange(1, group_size, dtype=torch.float64)
    chance = torch.tensor(p, dtype=torch.float64)
    logs = torch.distributions.Binomial(group_size, chance).log_prob(right)
    return (logs.softmax(dim=0) @ binary_rescaling(group_size, scales)).item()


def undivided_rescaling(group_size: int, scales: WeightedScales) -> float:
    """f: without the std division, MS-GRPO = f * (reward - group mean) for any rewards.

    The mean of a subgroup with i holds r_i itself and everybody else equally often, so that
    f = sum over tau of w_tau (tau - 1) / tau * G / (G - 1).
    """
    inside = sum(weight * (scale - 1) / scale for scale, weight in scales)
    return inside * group_size / (group_size - 1)


def hypergeometric(
    found: torch.Tensor, population: int, marked: int, draws: torch.Tensor
) -> torch.Tensor:
    """Probability that `draws` of `population` members hold exactly `found` of `marked` ones.

    Args:
        found, draws: int64, broadcastable; 0 <= draws <= population.
        population, marked: 0 <= marked <= population.

    Returns:
        float64 of the broadcast shape.
    """
    found, draws = torch.broadcast_tensors(found, draws)
    taken = torch.stack([found, draws - found], dim=-1).reshape(-1, 2)
    there = torch.tensor([marked, population - marked])
    possible = ((taken >= 0) & (taken <= there)).all(dim=1)
    logs = log_binomials(there.tolist(), torch.where(possible[:, None], taken, 0).numpy())
    logs -= log_binomials([population], draws.reshape(-1, 1).numpy())
    return torch.where(possible, torch.from_numpy(logs).exp(), 0.0).reshape(found.shape)
