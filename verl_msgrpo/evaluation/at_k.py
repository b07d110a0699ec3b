"""pass@k and maj@k of a prompt: averages over all k-subsets of its samples, none enumerated.

pass@k is the chance that at least one of k samples is right, maj@k that their most frequent answer
is.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def pass_at_k(
    samples: npt.NDArray[np.int64], correct: npt.NDArray[np.int64], k: int
) -> npt.NDArray[np.float64]:
    """The unbiased estimate 1 - C(n - c, k) / C(n, k) of each prompt.

    It is the share of the k-subsets of the n samples that hold one of the c right ones. To draw k
    of the n with replacement instead (verl's `best@k`) gives 1 - (1 - c/n)^k, which is too low.

    Args:
        samples: (P,) n of each prompt.
        correct: (P,) c of each prompt, 0 <= c <= n.
        k: at least 1.

    Returns:
        (P,) float64; NaN where n < k.

    Source: Chen et al. 2021, "Evaluating Large Language Models Trained on Code", section 2.1.
    """
    result = np.full(len(samples), np.nan)
    # Prompts share few pairs (n, c); each is worked out once.
    pairs, pair_of = np.unique(np.stack([samples, correct]), axis=1, return_inverse=True)
    for pair, (n, c) in enumerate(pairs.T.tolist()):
        if n >= k:
            # C(n - c, k) / C(n, k) as a product, since the binomials themselves overflow.
            wrong = 0.0 if n - c < k else np.prod(1.0 - k / np.arange(n - c + 1, n + 1))
            result[pair_of == pair] = 1.0 - wrong
    return result


def maj_at_k(counts: Sequence[int], correct: Sequence[float], silent: int, k: int) -> float:
    """The average over all k-subsets of a prompt's samples, without enumerating them.

    In each subset the answer with the most votes wins; answers with equally many share the win.
    Samples without an answer do not vote, and a subset without votes is wrong.

    Args:
        counts: (V,) samples that give each distinct answer, at least 1.
        correct: (V,) how right each answer is, 0 to 1.
        silent: samples without an answer.
        k: at least 1.

    Returns:
        the average; NaN where there are fewer than k samples.

    Source: Wang et al. 2022, "Self-Consistency Improves Chain of Thought Reasoning" for the vote;
    the average over subsets is to it what pass@k is to the best of k.
    """
    if sum(counts) + silent < k:
        return math.nan
    chances = _chances(tuple(sorted(counts)), silent, k)
    return sum(chances[count] * right for count, right in zip(counts, correct, strict=True))


@functools.lru_cache(maxsize=2**14)
def _chances(counts: tuple[int, ...], silent: int, k: int) -> dict[int, float]:
    """For each distinct count the chance that one answer with so many samples wins."""
    n = sum(counts) + silent
    distinct, number = np.unique(np.array(counts, dtype=np.int64), return_counts=True)
    # A uniform k-subset is what independent coins for every sample choose, given that they choose
    # k: all are probabilities then, where the numbers of subsets overflow. With heads at k / n
    # that condition is likely.
    wins = np.zeros(len(distinct))
    for most in range(1, min(max(counts, default=0), k) + 1):
        wins += _wins_with(most, counts, distinct, n, k)
    wins /= number * _binomial(n, k / n)[k]
    return dict(zip(distinct.tolist(), wins.tolist(), strict=True))


def _wins_with(
    most: int, counts: tuple[int, ...], distinct: npt.NDArray[np.int64], n: int, k: int
) -> Vector:
    """Chance that the coins choose k samples and an answer with each distinct count wins with
    `most` votes; an answer that shares the win adds its share."""
    able = [count for count in counts if count >= most]
    # By subset size and number of answers at the top: the chance, and the same times the number of
    # answers with each distinct count at the top.
    shape = k + 1, min(len(able), k // most) + 1
    chance, at_top = np.zeros(shape), np.zeros((*shape, len(distinct)))
    others = _binomial(n - sum(able), k / n)[: k + 1]
    chance[: len(others), 0] = others
    for count in able:
        votes = _binomial(count, k / n)
        next_chance, next_at_top = np.zeros_like(chance), np.zeros_like(at_top)
        for below in range(most):
            next_chance[below:] += votes[below] * chance[: k + 1 - below]
            next_at_top[below:] += votes[below] * at_top[: k + 1 - below]
        # This answer comes to the top as well.
        reached = votes[most] * chance[: k + 1 - most, :-1]
        next_chance[most:, 1:] += reached
        next_at_top[most:, 1:] += votes[most] * at_top[: k + 1 - most, :-1]
        next_at_top[most:, 1:, distinct == count] += reached[..., None]
        chance, at_top = next_chance, next_at_top
    sharing = np.arange(1, shape[1])
    return np.sum(at_top[k, 1:] / sharing[:, None], axis=0)


@functools.lru_cache(maxsize=1024)
def _binomial(count: int, heads: float) -> Vector:
    """(count + 1,) probabilities of 0 .. count heads."""
    if heads == 1.0:
        return np.eye(1, count + 1, count)[0]
    log_factorial = np.array([math.lgamma(i + 1) for i in range(count + 1)])
    number = np.arange(count + 1)
    log_ways = log_factorial[count] - log_factorial - log_factorial[::-1]
    return np.exp(log_ways + number * math.log(heads) + number[::-1] * math.log1p(-heads))
