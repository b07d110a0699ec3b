"""Two files of samples for the same prompts: the paired difference of every quantity."""

import dataclasses

import numpy as np

from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.dumps import Samples
from verl_msgrpo.evaluation.intervals import bootstrap_intervals
from verl_msgrpo.evaluation.quantities import ALL, AVG, PromptTable, Request, avg_name, by_prompt


@dataclasses.dataclass(frozen=True)
class Difference:
    """Means over the pairs of prompts, and the 95 % interval of `second - first`."""

    source: str
    quantity: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    pairs: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All differences; how many prompts are in one file only."""

    differences: list[Difference]
    pairs: int
    only_first: int
    only_second: int


def compare(first: Samples, second: Samples, request: Request, seed: int) -> Comparison:
    """Pairs the prompts of two files and resamples the pairs.

    verl gives every validation fresh uids, so prompts of its dumps are paired by their row of
    --data where that is given, else by their text; groups with the same prompt count as one.
    A quantity is compared over the prompts that have it in both files.

    Raises:
        UserError: no prompt is in both files, or k is too large for one of them.
    """
    first, second = merged(first), merged(second)
    if not request.ks:
        smaller = min(int(np.bincount(samples.prompts).max()) for samples in (first, second))
        request = dataclasses.replace(request, ks=tuple(sorted({1, smaller})))
    tables = by_prompt(first, request), by_prompt(second, request)
    place = {key: row for row, key in enumerate(second.keys)}
    pairs = [(row, place[key]) for row, key in enumerate(first.keys) if key in place]
    if not pairs:
        raise UserError(
            f"no prompt is in both {first.path} and {second.path}; if only their chat "
            "templates differ, give the data file with --data"
        )
    return Comparison(
        differences=_differences(*tables, np.array(pairs), seed),
        pairs=len(pairs),
        only_first=len(first.keys) - len(pairs),
        only_second=len(second.keys) - len(pairs),
    )


def merged(samples: Samples) -> Samples:
    """The same samples, grouped by what names their prompt across files."""
    first_of: dict[bytes, int] = {}
    kept: list[int] = []
    group_of = np.empty(len(samples.keys), dtype=np.int64)
    for prompt, key in enumerate(samples.keys):
        if key not in first_of:
            first_of[key] = len(kept)
            kept.append(prompt)
        group_of[prompt] = first_of[key]
    return dataclasses.replace(
        samples,
        prompts=group_of[samples.prompts],
        keys=[samples.keys[prompt] for prompt in kept],
        sources=[samples.sources[prompt] for prompt in kept],
    )


def _differences(
    first: PromptTable, second: PromptTable, pairs: np.ndarray, seed: int
) -> list[Difference]:
    sources = np.array(first.sources, dtype=object)[pairs[:, 0]]
    names = sorted(set(sources.tolist()))
    parts = [(name, pairs[sources == name]) for name in names]
    if len(names) > 1:
        parts.append((ALL, pairs))
    differences = []
    for name, part in parts:
        both = {
            quantity: values
            for quantity in first.values
            if quantity in second.values
            and not np.isnan(values := _columns(first, second, quantity, part)).any(axis=1).all()
        }
        change = np.stack([values[:, 1] - values[:, 0] for values in both.values()], axis=1)
        low, high = bootstrap_intervals(change, seed=seed)
        avg = avg_name(np.concatenate([first.largest[part[:, 0]], second.largest[part[:, 1]]]))
        for column, (quantity, values) in enumerate(both.items()):
            paired = values[~np.isnan(values).any(axis=1)]
            before, after = paired.mean(axis=0).tolist()
            differences.append(
                Difference(
                    source=name,
                    quantity=avg if quantity == AVG else quantity,
                    first=before,
                    second=after,
                    difference=after - before,
                    low=float(low[column]),
                    high=float(high[column]),
                    pairs=len(paired),
                )
            )
    return differences


def _columns(
    first: PromptTable, second: PromptTable, quantity: str, pairs: np.ndarray
) -> np.ndarray:
    """(pairs, 2) values of both files."""
    return np.stack(
        [first.values[quantity][pairs[:, 0]], second.values[quantity][pairs[:, 1]]], axis=1
    )
