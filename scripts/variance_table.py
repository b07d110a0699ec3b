"""Reproduces a published Monte Carlo table: how well each estimator knows the mean reward.

    python scripts/variance_table.py [--trials 200000]

A group of 8 i.i.d. rewards is drawn; without the division by the standard deviation, the advantage
is an estimate of r_i - E[r]. The public review of the paper measured its mean squared error for
GRPO and MS-GRPO with 1000 trials. For i.i.d. rewards of variance s^2 it is known in closed form:
s^2 / G for GRPO, and s^2 / G + (1 - f)^2 s^2 (G - 1) / G for MS-GRPO, which is f times GRPO.

A row agrees if what is measured lies within three standard errors of the closed form, and the
published value, with its 1000 trials, within three of its own (3 * sqrt(2 / 1000) of the value).
"""

import argparse
import math
from collections.abc import Callable

import torch

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages

GROUP_SIZE = 8
PUBLISHED_TRIALS = 1000
Draw = Callable[[tuple[int, int], torch.Generator], torch.Tensor]


def normal(mean: float, std: float) -> Draw:
    def draw(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
        return mean + std * torch.randn(shape, generator=generator, dtype=torch.float64)

    return draw


def uniform(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def mixture(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    first = torch.rand(shape, generator=generator) < 0.5
    return torch.where(
        first, normal(0.3, 0.1)(shape, generator), normal(0.7, 0.1)(shape, generator)
    )


# rewards: how to draw them, mean, variance, published errors of GRPO and MS-GRPO
TABLE: dict[str, tuple[Draw, float, float, float, float]] = {
    "normal, s = 0.1": (normal(0.5, 0.1), 0.5, 0.01, 0.00117, 0.00134),
    "normal, s = 0.2": (normal(0.5, 0.2), 0.5, 0.04, 0.00450, 0.00517),
    "normal, s = 0.3": (normal(0.5, 0.3), 0.5, 0.09, 0.0109, 0.0123),
    "two normals": (mixture, 0.5, 0.01 + 0.04, 0.00619, 0.00700),
    "uniform on 0..1": (uniform, 0.5, 1 / 12, 0.0100, 0.0114),
}
ESTIMATORS = {
    "GRPO": MSGRPOConfig(scales=[GROUP_SIZE], normalize_by_std=False),
    "MS-GRPO": MSGRPOConfig(normalize_by_std=False),
}


def measured(draw: Draw, mean: float, config: MSGRPOConfig, trials: int) -> tuple[float, float]:
    """Mean squared error of the advantages as estimates of r - E[r], and its standard error."""
    rewards = draw((trials, GROUP_SIZE), torch.Generator().manual_seed(0))
    errors = ms_grpo_advantages(rewards, config) - (rewards - mean)
    per_trial = errors.square().mean(dim=1)
    return per_trial.mean().item(), per_trial.std().item() / math.sqrt(trials)


def closed_form(variance: float, config: MSGRPOConfig) -> float:
    """s^2 / G + (1 - f)^2 s^2 (G - 1) / G, with f read off one group."""
    probe = torch.tensor([[1.0] + [0.0] * (GROUP_SIZE - 1)], dtype=torch.float64)
    factor = ms_grpo_advantages(probe, config)[0, 0].item() / (1 - 1 / GROUP_SIZE)
    return variance / GROUP_SIZE * (1 + (1 - factor) ** 2 * (GROUP_SIZE - 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200_000, help="groups per row (200000)")
    args = parser.parse_args()
    header = ("rewards", "estimator", "measured", "std error", "closed form", "published")
    print(f"{header[0]:17}{header[1]:10}" + "".join(f"{name:>12}" for name in header[2:]))
    agree = True
    for name, (draw, mean, variance, *published) in TABLE.items():
        for (estimator, config), value in zip(ESTIMATORS.items(), published, strict=True):
            mse, error = measured(draw, mean, config, args.trials)
            exact = closed_form(variance, config)
            ok = abs(mse - exact) <= 3 * error
            ok &= abs(value - exact) <= 3 * math.sqrt(2 / PUBLISHED_TRIALS) * value
            agree &= ok
            print(
                f"{name:17}{estimator:10}{mse:12.6f}{error:12.6f}{exact:12.6f}{value:12.5f}"
                f"  {'agrees' if ok else 'DIFFERS'}"
            )
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
