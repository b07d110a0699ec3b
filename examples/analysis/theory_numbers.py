"""The numbers of the theory: exact where that is possible, else from many drawn groups."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import torch

from verl_msgrpo import MSGRPOConfig, ms_grpo_advantages
from verl_msgrpo.analysis.errors import (
    RewardDistribution,
    design_errors,
    discrete_errors,
    sampled_errors,
    undivided_bias,
    undivided_mse,
)
from verl_msgrpo.analysis.rescaling import binary_rescaling, undivided_rescaling
from verl_msgrpo.analysis.taylor import heterogeneity, taylor_advantages
from verl_msgrpo.analysis.training import methods
from verl_msgrpo.estimator.scales import weighted_scales

GROUP_SIZE = 8
GROUPS = 1000
ORDERS = (0, 1, 2)
PAIR = ("GRPO", "MS-GRPO exact")

Curves = dict[str, list[float]]
Rows = dict[str, dict[str, float]]


class ScaleError(TypedDict):
    """At one scale: heterogeneity V, and the error of each order of the expansion."""

    scale: int
    V: float
    errors: list[float]


TaylorErrors = TypedDict(
    "TaylorErrors",
    {"by_scale": list[ScaleError], "all scales": list[float], "scales 4 and up": list[float]},
)


class TheoryNumbers(TypedDict):
    """Everything that the figures and README.md show, as plain lists and numbers."""

    rescaling: Curves
    one_group: Curves
    outlier: Curves
    taylor: dict[str, TaylorErrors]
    design: dict[str, list[dict[str, float]]]
    errors: dict[str, Rows]
    undivided: Rows


def theory_numbers() -> TheoryNumbers:
    """All of them."""
    return {
        "rescaling": rescaling(),
        "one_group": one_group(),
        "outlier": outlier(),
        "taylor": taylor(),
        "design": design(),
        "errors": errors(),
        "undivided": undivided(),
    }


def rescaling() -> Curves:
    """c by the number of right responses, for some group sizes."""
    result = {
        f"G = {size}": binary_rescaling(size, weighted_scales(size, MSGRPOConfig())).tolist()
        for size in (4, 8, 16, 64)
    }
    paper = weighted_scales(8, MSGRPOConfig(num_scales=4))
    result["G = 8, scales 2, 4, 6, 8"] = binary_rescaling(8, paper).tolist()
    return result


def one_group() -> Curves:
    """Partial credit: how GRPO and MS-GRPO judge the same eight responses."""
    rewards = [0.0, 0.0, 0.1, 0.1, 0.2, 0.2, 0.4, 1.0]
    found = _advantages(torch.tensor([rewards], dtype=torch.float64))
    return {"rewards": rewards, **{name: each[0].tolist() for name, each in found.items()}}


def outlier() -> Curves:
    """Seven rewards 0, 1/6, .. 1 and an eighth that grows: what is left between the first two."""
    eighth = torch.logspace(0, 3, 31, dtype=torch.float64)
    ordinary = torch.linspace(0, 1, 7, dtype=torch.float64).expand(len(eighth), -1)
    rewards = torch.cat([ordinary, eighth[:, None]], dim=1)
    found = _advantages(rewards)
    left = {name: (each[:, 6] - each[:, 0]).tolist() for name, each in found.items()}
    return {"eighth": eighth.tolist(), **left}


def taylor() -> dict[str, TaylorErrors]:
    """Error of the expansion at each scale, with V, for groups of four kinds of rewards."""
    result: dict[str, TaylorErrors] = {}
    every = weighted_scales(GROUP_SIZE, MSGRPOConfig())
    from_four = weighted_scales(GROUP_SIZE, MSGRPOConfig(min_scale=4))
    for name, rewards in _groups().items():
        rows: list[ScaleError] = []
        for scale in range(2, GROUP_SIZE):
            v = heterogeneity(rewards, scale)[rewards.std(dim=1) > 0].mean().item()
            rows.append({"scale": scale, "V": v, "errors": _taylor(rewards, ((scale, 1.0),))})
        result[name] = {
            "by_scale": rows,
            "all scales": _taylor(rewards, every),
            "scales 4 and up": _taylor(rewards, from_four),
        }
    return result


def design() -> dict[str, list[dict[str, float]]]:
    """Noise by M and K, and what fewer scales change, by M, for the same groups."""
    result = {}
    for name, rewards in _groups().items():
        rows = []
        for num_scales in (2, 4, 7):
            for subgroups in (4, 8, 16, 32, 64):
                found = design_errors(rewards, num_scales, subgroups)
                rows.append({"M": num_scales, "K": subgroups, **found._asdict()})
        result[name] = rows
    return result


def errors() -> dict[str, Rows]:
    """Advantages as estimates of (r - E r) / sd."""
    result: dict[str, Rows] = {}
    discrete: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        "binary, half right": ([0, 1], [0.5, 0.5]),
        "binary, 1 in 10 right": ([0, 1], [0.9, 0.1]),
        "three levels 0, 0.5, 1": ([0, 0.5, 1], [0.4, 0.3, 0.3]),
        "partial credit 0, 0.1, 0.2, 1": ([0, 0.1, 0.2, 1], [0.3, 0.3, 0.3, 0.1]),
    }
    for name, (values, chances) in discrete.items():
        by_method = {}
        for method in PAIR:
            exact = discrete_errors(values, chances, GROUP_SIZE, methods(GROUP_SIZE)[method])
            by_method[method] = _error_row(exact.mse, exact.gain, exact.correlation)
        result[name] = by_method
    for name, rewards in _distributions().items():
        by_method = {}
        for method in (*PAIR, "MS-GRPO paper"):
            drawn = sampled_errors(rewards, GROUP_SIZE, methods(GROUP_SIZE)[method])
            by_method[method] = _error_row(drawn.mse.value, drawn.gain.value, drawn.correlation)
        result[name] = by_method
    return result


def _error_row(mse: float, gain: float, correlation: float) -> dict[str, float]:
    return {"mse": mse, "gain": gain, "correlation": correlation}


def undivided() -> Rows:
    """Closed forms for G = 8 without the std division, rewards of variance 1."""
    result = {}
    for name, config in {
        "Dr. GRPO": MSGRPOConfig(scales=[GROUP_SIZE]),
        "MS-GRPO, all scales": MSGRPOConfig(),
        "MS-GRPO, 2, 4, 6, 8": MSGRPOConfig(num_scales=4),
    }.items():
        scales = weighted_scales(GROUP_SIZE, config)
        result[name] = {
            "f": undivided_rescaling(GROUP_SIZE, scales),
            "bias": undivided_bias(GROUP_SIZE, scales),
            "mse": undivided_mse(1.0, GROUP_SIZE, scales),
        }
    return result


def _advantages(rewards: torch.Tensor) -> dict[str, torch.Tensor]:
    """(n, 8) rewards -> (n, 8) advantages of GRPO and MS-GRPO."""
    return {name: ms_grpo_advantages(rewards, methods(GROUP_SIZE)[name]) for name in PAIR}


def _taylor(rewards: torch.Tensor, scales: tuple[tuple[int, float], ...]) -> list[float]:
    """Norm of the error of each order / norm of the exact advantages, over all groups."""
    sizes, weights = zip(*scales, strict=True)
    config = MSGRPOConfig(scales=sizes, scale_weights=weights, subgroups="all", epsilon=0.0)
    exact = ms_grpo_advantages(rewards, config)
    found = [taylor_advantages(rewards, scales, order) for order in ORDERS]
    return [((each - exact).norm() / exact.norm()).item() for each in found]


def _groups() -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(0)
    shape = (GROUPS, GROUP_SIZE)
    normal = torch.from_numpy(generator.normal(size=shape))
    uniform = torch.from_numpy(generator.random(shape))
    return {
        "binary": (uniform < 0.5).double(),
        "three levels": (uniform < 0.6).double() + (uniform < 0.3),
        "normal": normal,
        "lognormal": (1.5 * normal).exp(),
    }


def _distributions() -> dict[str, RewardDistribution]:
    def normal(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def lognormal(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
        return normal(shape, generator).exp()

    def student(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
        squares = sum((normal(shape, generator).square() for _ in range(3)), torch.zeros(()))
        return normal(shape, generator) / (squares / 3).sqrt()

    e = float(np.e)
    return {
        "normal": RewardDistribution(normal, 0.0, 1.0),
        "lognormal": RewardDistribution(lognormal, e**0.5, ((e - 1) * e) ** 0.5),
        "Student t, 3 degrees": RewardDistribution(student, 0.0, 3**0.5),
    }
