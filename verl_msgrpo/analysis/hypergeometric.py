"""How many marked members a random subgroup holds."""

import torch


def log_binomials(top: torch.Tensor, bottom: torch.Tensor) -> torch.Tensor:
    """Logarithm of C(top, bottom), minus infinity where that is 0.

    Args:
        top, bottom: int64, broadcastable; top >= 0.

    Returns:
        float64. Binomials themselves overflow for large groups.
    """
    log_factorials = torch.lgamma(torch.arange(1, int(top.max()) + 2, dtype=torch.float64))
    possible = (bottom >= 0) & (bottom <= top)
    inside = torch.where(possible, bottom, 0)
    logs = log_factorials[top] - log_factorials[inside] - log_factorials[top - inside]
    return torch.where(possible, logs, -torch.inf)


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
    among_marked = log_binomials(torch.tensor(marked), found)
    among_others = log_binomials(torch.tensor(population - marked), draws - found)
    return (among_marked + among_others - log_binomials(torch.tensor(population), draws)).exp()
