"""The average over a few chosen subgroups per scale."""

from collections.abc import Sequence

import torch

VALUES_AT_ONCE = 2**20  # of the (groups, subgroups, members) intermediate: 8 MiB each


def advantages_over(
    rewards: torch.Tensor,
    subgroups: Sequence[tuple[torch.Tensor, float]],
    epsilon: torch.Tensor | None,
) -> torch.Tensor:
    """Averages subgroup advantages over the chosen subgroups that contain a response.

    Args:
        rewards: (n, G) float64, finite.
        subgroups: one pair per scale: (K, tau) int64 members of each subgroup, everybody in at
            least one, and the weight of the scale.
        epsilon: (n,) float64, 0 .. 1e300, added to the std; None: do not divide.

    Returns:
        (n, G) float64; equal rewards of a subgroup contribute exactly 0.
    """
    result = torch.zeros_like(rewards)
    for members, weight in subgroups:
        step = max(1, VALUES_AT_ONCE // members.numel())
        flat = members.flatten()
        share = weight / torch.bincount(flat, minlength=rewards.shape[1]).double()
        for start in range(0, len(rewards), step):
            part = slice(start, start + step)
            inside = rewards[part, members]
            inside = inside - inside[:, :, :1]  # the mean of equal rewards is now exact
            inside -= inside.mean(dim=2, keepdim=True)
            if epsilon is not None:
                std = (inside.square().sum(dim=2, keepdim=True) / (members.shape[1] - 1)).sqrt()
                inside /= (std + epsilon[part, None, None]).clamp_(min=1e-200)
            inside *= share[members]
            result[part].index_add_(1, flat, inside.flatten(start_dim=1))
    return result
