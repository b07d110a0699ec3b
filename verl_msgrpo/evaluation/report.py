"""The estimates of each data_source, and of all prompts together."""

import dataclasses

import numpy as np
import numpy.typing as npt

from verl_msgrpo.evaluation.intervals import bootstrap_intervals
from verl_msgrpo.evaluation.quantities import AVG, PromptTable, avg_name

ALL = "(all)"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over prompts with its 95 % interval (NaN where there are too few prompts)."""

    quantity: str
    value: float
    low: float
    high: float
    prompts: int


@dataclasses.dataclass(frozen=True)
class SourceReport:
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


def report(table: PromptTable, seed: int) -> list[SourceReport]:
    """One report a data_source, in alphabetical order, and then one of all if there are several."""
    sources = np.array(table.sources, dtype=object)
    names = sorted(set(table.sources))
    reports = [_report(table, name, sources == name, seed) for name in names]
    if len(names) > 1:
        reports.append(_report(table, ALL, np.ones(len(sources), dtype=bool), seed))
    return reports


def _report(
    table: PromptTable, source: str, chosen: npt.NDArray[np.bool_], seed: int
) -> SourceReport:
    sizes, largest = table.sizes[chosen], table.largest[chosen]
    present = {
        name: own
        for name, values in table.values.items()
        if not np.isnan(own := values[chosen]).all()
    }
    low, high = bootstrap_intervals(np.stack(list(present.values()), axis=1), seed=seed)
    return SourceReport(
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
