"""Small problems with one prompt and a few possible responses ("arms"), each with noisy rewards.

Every run gets a bandit of its own, so that one learning rate has to serve easy and hard ones, as
it has to serve many prompts. Five kinds, each with a *level* >= 0 that makes its rewards more
heterogeneous:

    binary      1 with probability q_a, else 0; the level is the spread of difficulty over bandits
    graded      n of 4 tests pass, each with probability q_a; the reward is (n / 4)^(1 + level):
                the higher the level, the more of it is in the last test
    continuous  m_a + s_a * normal noise; the level is the spread of log s_a over the arms
    heavy       m_a + noise of Student's t with 1.2 + 3 / level degrees of freedom (normal for 0):
                the higher, the wilder the outliers; symmetric
    skewed      m_a + lognormal noise, shifted to mean 0; the log's std is between 0.5 and
                0.5 + level, different for each arm: rare high rewards, so that the arm with the
                best mean need not be the one that usually wins

`scores_of` says what a policy achieved on them, in units of what could be gained.
"""

import math
from typing import NamedTuple

import numpy as np
import torch

KINDS = ("binary", "graded", "continuous", "heavy", "skewed")
ARMS = 10
TESTS = {"binary": 1, "graded": 4}


class Bandits(NamedTuple):
    """B bandits of one kind and level.

    quality: (B, arms) float64, q_a or m_a.
    noise: (B, arms) float64, the noise's width, or shape for "skewed"; unused by binary and graded.
    expected: (B, arms) float64, the mean reward of each arm.
    """

    kind: str
    level: float
    quality: torch.Tensor
    noise: torch.Tensor
    expected: torch.Tensor


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


def make_bandits(kind: str, level: float, bandits: int, rng: np.random.Generator) -> Bandits:
    """Draws bandits; see above for `kind` and `level`."""
    if kind not in KINDS:
        raise ValueError(f"kind: allowed are {', '.join(KINDS)}, got {kind!r}")
    shape = (bandits, ARMS)
    ability = torch.from_numpy(rng.normal(size=shape))
    difficulty = torch.from_numpy(rng.normal(size=(bandits, 1)))
    noise = torch.ones(shape, dtype=torch.float64)
    if kind in TESTS:
        if kind == "binary":
            ability = ability + level * difficulty
        quality = torch.sigmoid(ability)
        expected = _mean_of_passed(quality, _rewards_of_passed(kind, level))
        return Bandits(kind, level, quality, noise, expected)
    if kind == "continuous":
        noise = torch.from_numpy(np.exp(level * rng.normal(size=shape)))
    elif kind == "skewed":
        noise = torch.from_numpy(0.5 + level * rng.random(shape))
    return Bandits(kind, level, ability, noise, ability)


def draw_noise(bandits: Bandits, group_size: int, rng: np.random.Generator) -> torch.Tensor:
    """(B, G, n) float64: what `pull` needs beside the arms; drawn alike for every method."""
    shape = (len(bandits.quality), group_size)
    if bandits.kind in TESTS:
        return torch.from_numpy(rng.random((*shape, TESTS[bandits.kind])))
    if bandits.kind == "heavy" and bandits.level > 0:
        drawn = rng.standard_t(1.2 + 3 / bandits.level, size=shape)
    else:
        drawn = rng.normal(size=shape)
    return torch.from_numpy(drawn)[:, :, None]


def pull(bandits: Bandits, arms: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Rewards of the arms that were chosen.

    Args:
        arms: (L, B, G) int64.
        noise: (B, G, n), see `draw_noise`; the same for all L.

    Returns:
        (L, B, G) float64.
    """
    quality = _of_arms(bandits.quality, arms)
    if bandits.kind in TESTS:
        passed = (noise < quality[..., None]).sum(dim=-1)
        return _rewards_of_passed(bandits.kind, bandits.level)[passed]
    width = _of_arms(bandits.noise, arms)
    if bandits.kind == "skewed":
        return quality + (width * noise[..., 0]).exp() - (width.square() / 2).exp()
    return quality + width * noise[..., 0]


def scores_of(values: torch.Tensor, bandits: Bandits) -> Scores:
    """Scores policies by what they gained.

    Args:
        values: (steps + 1, L, B) float64, their expected rewards at the start and after each step.
    """
    gained = values[1:] - values[0]
    attainable = bandits.expected.amax(dim=1) - bandits.expected.mean(dim=1)
    unit = attainable.mean()
    stuck = gained[-1] < attainable / 2
    return Scores(gained[-1] / unit, gained.mean(dim=0) / unit, stuck.double())


def _of_arms(numbers: torch.Tensor, arms: torch.Tensor) -> torch.Tensor:
    return numbers.expand(len(arms), -1, -1).gather(2, arms)


def _rewards_of_passed(kind: str, level: float) -> torch.Tensor:
    """(tests + 1,) float64: the reward for 0, 1, .. tests passed."""
    share = torch.linspace(0, 1, TESTS[kind] + 1, dtype=torch.float64)
    return share ** (1 + level) if kind == "graded" else share


def _mean_of_passed(quality: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """Expected reward if each test passes with probability `quality`."""
    tests = len(rewards) - 1
    terms = [
        math.comb(tests, n) * quality**n * (1 - quality) ** (tests - n) * rewards[n]
        for n in range(tests + 1)
    ]
    return torch.stack(terms).sum(dim=0)
