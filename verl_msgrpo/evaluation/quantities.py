"""What is estimated: avg@n, pass@k, maj@k, and the mean of every other number.

First of each prompt (`by_prompt`), then as means over the prompts of each data_source, with their
intervals (`by_source`).
"""

import dataclasses
from collections import Counter, defaultdict

import numpy as np
import numpy.typing as npt

from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.at_k import maj_at_k, pass_at_k
from verl_msgrpo.evaluation.dumps import NO_ANSWER, NO_PRED, Samples
from verl_msgrpo.evaluation.intervals import bootstrap_intervals

METRICS = ("acc", "score")
AVG = "avg@n"
ALL = "(all)"  # the name of all data_sources together
FLOAT32_NOISE = 1e-6  # relative; scores of verl are sums in float32


@dataclasses.dataclass(frozen=True)
class Request:
    """What to estimate.

    ks: the k of pass@k and maj@k; none stands for 1 and the size of the largest group.
    metric: the key with the result of a sample; None for `acc` where a data_source has it, else
        `score`.
    threshold: a sample with at least this result is right.
    """

    ks: tuple[int, ...] = ()
    metric: str | None = None
    threshold: float = 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class PromptTable:
    """P prompts, one row each.

    Attributes:
        values: (P,) float64 under the name of each quantity; NaN where a prompt has no such value.
        sizes: (P,) int64, samples.
        largest: (P,) int64, samples in the largest group of the same data_source.
        unscored: (P,) int64, samples without a result, which count as 0.
        metrics: P keys that the result was taken from.
        sources: P values of data_source.
        keys: P names of the prompt across files.
    """

    values: dict[str, npt.NDArray[np.float64]]
    sizes: npt.NDArray[np.int64]
    largest: npt.NDArray[np.int64]
    unscored: npt.NDArray[np.int64]
    metrics: list[str]
    sources: list[str]
    keys: list[bytes]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over prompts with its 95 % interval (NaN where there are too few prompts)."""

    quantity: str
    value: float
    low: float
    high: float
    prompts: int


@dataclasses.dataclass(frozen=True)
class SourceSummary:
    """One data_source.

    metric: the key that the result was taken from.
    group_size: samples in its largest group.
    short_groups: groups with fewer.
    unscored: samples without a result.
    """

    source: str
    metric: str
    prompts: int
    samples: int
    group_size: int
    short_groups: int
    unscored: int
    estimates: list[Estimate]


def by_prompt(samples: Samples, request: Request) -> PromptTable:
    """Estimates everything of each prompt.

    avg@n is the mean over all samples that the prompt has. pass@k and maj@k are left out where it
    has fewer than k. maj@k is there for k >= 2 and for data_sources with answers (`pred`).

    Raises:
        UserError: the file has no such metric, or k is larger than the largest group.
    """
    prompts = samples.prompts
    count = len(samples.keys)
    sizes = np.bincount(prompts, minlength=count)
    ks = request.ks or tuple(sorted({1, int(sizes.max())}))
    if max(ks) > sizes.max():
        raise UserError(
            f"{samples.path}: --k {max(ks)}, but no prompt has more than {sizes.max()} samples"
        )
    results, metrics = _results(samples, request.metric)
    unscored = np.bincount(prompts, weights=np.isnan(results), minlength=count).astype(np.int64)
    results = np.nan_to_num(results, nan=0.0)
    right = results >= request.threshold - FLOAT32_NOISE * abs(request.threshold)
    correct = np.bincount(prompts, weights=right, minlength=count).astype(np.int64)

    values = {AVG: np.bincount(prompts, weights=results, minlength=count) / sizes}
    values |= {f"pass@{k}": pass_at_k(sizes, correct, k) for k in ks}
    votes = _votes(samples, right)
    values |= {f"maj@{k}": _majority(votes, samples, k) for k in ks if k >= 2 and votes}
    metric_of = np.array(metrics, dtype=object)
    for key, numbers in samples.numbers.items():
        if key not in values:
            present = ~np.isnan(numbers) & (metric_of != key)[prompts]
            total = np.bincount(prompts, np.where(present, numbers, 0.0), minlength=count)
            with np.errstate(invalid="ignore"):
                values[key] = total / np.bincount(prompts, present, minlength=count)

    largest: dict[str, int] = defaultdict(int)
    for source, size in zip(samples.sources, sizes.tolist(), strict=True):
        largest[source] = max(largest[source], size)
    return PromptTable(
        values=values,
        sizes=sizes,
        largest=np.array([largest[source] for source in samples.sources]),
        unscored=unscored,
        metrics=metrics,
        sources=samples.sources,
        keys=samples.keys,
    )


def by_source(table: PromptTable, seed: int) -> list[SourceSummary]:
    """One of each data_source, in alphabetical order, and then one of all if there are several."""
    sources = np.array(table.sources, dtype=object)
    names = sorted(set(table.sources))
    summaries = [_summary(table, name, sources == name, seed) for name in names]
    if len(names) > 1:
        summaries.append(_summary(table, ALL, np.ones(len(sources), dtype=bool), seed))
    return summaries


def avg_name(largest: npt.NDArray[np.int64]) -> str:
    """avg@ the size of the groups, where prompts agree in it."""
    return f"avg@{largest[0]}" if (largest == largest[0]).all() else AVG


def _results(samples: Samples, metric: str | None) -> tuple[npt.NDArray[np.float64], list[str]]:
    """(N,) results, NaN where a sample has none, and the P keys that they were taken from."""
    wanted = METRICS if metric is None else (metric,)
    known = [key for key in wanted if key in samples.numbers]
    if not known:
        raise UserError(
            f"{samples.path}: no numbers under {' or '.join(wanted)}; there are: "
            + (", ".join(map(repr, samples.numbers))[:300] or "none")
        )
    # Tasks are scored by different functions, and not each of them gives an `acc`.
    sources, source_of = np.unique(np.array(samples.sources, dtype=object), return_inverse=True)
    chosen = []
    for source in range(len(sources)):
        own = source_of[samples.prompts] == source
        has = (key for key in known if not np.isnan(samples.numbers[key][own]).all())
        chosen.append(next(has, known[0]))
    metrics = [chosen[source] for source in source_of]
    key_of = np.array([known.index(key) for key in metrics])[samples.prompts]
    return np.choose(key_of, [samples.numbers[key] for key in known]), metrics


Votes = dict[int, tuple[Counter[int], Counter[int]]]


def _votes(samples: Samples, right: npt.NDArray[np.bool_]) -> Votes:
    """Of each prompt with `pred`: how often each answer was given, and how often it was right."""
    votes: Votes = {}
    rows = zip(samples.prompts.tolist(), samples.answers.tolist(), right.tolist(), strict=True)
    for prompt, answer, is_right in rows:
        if answer != NO_PRED:
            given, correct = votes.setdefault(prompt, (Counter(), Counter()))
            given[answer] += 1
            correct[answer] += is_right
    return votes


def _majority(votes: Votes, samples: Samples, k: int) -> npt.NDArray[np.float64]:
    sizes = np.bincount(samples.prompts)
    result = np.full(len(samples.keys), np.nan)
    for prompt, (given, correct) in votes.items():
        answers = [answer for answer in given if answer != NO_ANSWER]
        counts = [given[answer] for answer in answers]
        shares = [correct[answer] / given[answer] for answer in answers]
        # A sample whose `pred` is null has no answer either.
        result[prompt] = maj_at_k(counts, shares, int(sizes[prompt]) - sum(counts), k)
    return result


def _summary(
    table: PromptTable, source: str, chosen: npt.NDArray[np.bool_], seed: int
) -> SourceSummary:
    sizes, largest = table.sizes[chosen], table.largest[chosen]
    present = {
        name: own
        for name, values in table.values.items()
        if not np.isnan(own := values[chosen]).all()
    }
    low, high = bootstrap_intervals(np.stack(list(present.values()), axis=1), seed=seed)
    return SourceSummary(
        source=source,
        metric=" or ".join(sorted({table.metrics[i] for i in np.flatnonzero(chosen)})),
        prompts=len(sizes),
        samples=int(sizes.sum()),
        group_size=int(largest.max()),
        short_groups=int((sizes < largest).sum()),
        unscored=int(table.unscored[chosen].sum()),
        estimates=[
            Estimate(
                quantity=avg_name(largest) if name == AVG else name,
                value=float(np.nanmean(own)),
                low=float(low[column]),
                high=float(high[column]),
                prompts=int((~np.isnan(own)).sum()),
            )
            for column, (name, own) in enumerate(present.items())
        ],
    )
