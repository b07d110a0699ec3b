"""pass@k: the chance that at least one of k samples of a prompt is right."""

import numpy as np
import numpy.typing as npt


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
