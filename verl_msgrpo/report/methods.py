"""Runs as methods x seeds: runs of one method differ in their seed and in nothing else."""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

from verl_msgrpo.report.runs import Run

_SEED = re.compile(r"seed[-_=]?(\d{1,9})", re.I)
# Where a run writes and what it is called says nothing about what it does.
_NAMES_AND_OUTPUTS = frozenset(
    f"trainer.{name}"
    for name in (
        *("project_name", "experiment_name", "default_local_dir", "default_hdfs_dir"),
        *("rollout_data_dir", "validation_data_dir"),
    )
)


@dataclasses.dataclass(frozen=True, eq=False)
class Method:
    """Attributes:
    name: as shown.
    runs: at least one.
    seeds: of each run; None where it is not known, or where two runs have the same.
    """

    name: str
    runs: list[Run]
    seeds: list[str | None]

    def by_seed(self) -> dict[str, Run]:
        """The runs with a seed of their own."""
        pairs = zip(self.seeds, self.runs, strict=True)
        return {seed: run for seed, run in pairs if seed is not None}


def method_of(name: str, runs: Sequence[Run]) -> Method:
    """A method with these runs."""
    seeds = [seed_of(run) for run in runs]
    times = Counter(seeds)
    return Method(name, list(runs), [seed if times[seed] == 1 else None for seed in seeds])


def group_runs(runs: Sequence[Run]) -> list[Method]:
    """Methods in the order of their first runs.

    Runs whose settings are known belong together when those agree but for seeds, names and output
    folders; so do, in names like `grpo-seed1`, the parts without the seed, as a setting that verl
    does not know (an environment variable) may stand there.
    """
    groups: dict[object, list[Run]] = {}
    for run in runs:
        groups.setdefault(_identity(run), []).append(run)
    names = [_name(group) for group in groups.values()]
    methods = []
    for number, (name, group) in enumerate(zip(names, groups.values(), strict=True)):
        earlier = names[:number].count(name)
        methods.append(method_of(f"{name} ({earlier + 1})" if earlier else name, group))
    return methods


def seed_of(run: Run) -> str | None:
    """The last `seed1` in the run's name, else its `data.seed`."""
    if found := _SEED.findall(run.name):
        return str(int(found[-1]))
    seed = run.settings.values.get("data.seed", "") if run.settings else ""
    return seed if seed.isdecimal() else None


def is_incidental(name: str) -> bool:
    """Whether a setting may differ between runs of one method: a seed, a name, an output folder."""
    return "seed" in name.rpartition(".")[2] or name in _NAMES_AND_OUTPUTS


def without_seed(text: str) -> str:
    """The text with `seed1` as `seed*`: paths of data and models that a seed has of its own."""
    return _SEED.sub("seed*", text)


def _identity(run: Run) -> object:
    stem = without_seed(run.name)
    if run.settings is None:
        return stem if stem != run.name else run.metrics_file.resolve()
    own = frozenset(
        (name, without_seed(value))
        for name, value in run.settings.values.items()
        if not is_incidental(name)
    )
    return (stem if stem != run.name else None), own


def _name(group: Sequence[Run]) -> str:
    stems = {_SEED.sub("", run.name).strip("-_=/. ") for run in group}
    if len(stems) == 1 and (stem := stems.pop()):
        return stem
    settings = group[0].settings
    estimator = settings.values.get("algorithm.adv_estimator", "") if settings else ""
    return estimator.strip('"') or group[0].name
