"""Runs as methods x seeds, and what else than the method differs between them.

Runs of one method differ in their seed and in nothing else. An unfair comparison has to show, so
every setting in which any two runs differ is named.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

from verl_msgrpo.report.runs import Run

_SEED = re.compile(r"seed[-_=]?(\d{1,9})", re.I)
METHOD_PREFIX = "algorithm."
ABSENT = "(not set)"
MAX_SEEDS_NAMED = 10

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
    folders. Names like `grpo-seed1` have to agree too, but for the seed: they may tell of a setting
    that verl does not know, such as an environment variable.
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
    seed = (run.settings or {}).get("data.seed", "")
    return seed if seed.isdecimal() else None


def is_incidental(name: str) -> bool:
    """Whether a setting may differ between runs of one method: a seed, a name, an output folder."""
    return "seed" in name.rpartition(".")[2] or name in _NAMES_AND_OUTPUTS


def without_seed(text: str) -> str:
    """The text with `seed1` as `seed*`: paths of data and models that a seed has of its own."""
    return _SEED.sub("seed*", text)


@dataclasses.dataclass(frozen=True)
class SettingDifference:
    """A setting that not all runs agree in.

    values: the different values of each method, in the order of its runs; none where the
        settings of no run are known.
    is_method: is in `algorithm`, where methods differ by intent.
    """

    name: str
    values: list[list[str]]
    is_method: bool


def differences(methods: Sequence[Method]) -> list[SettingDifference]:
    """Settings that differ between any two runs whose settings are known.

    Seeds, names and output folders are left out, and so are paths that differ in a `seed1` only.
    Those outside of `algorithm` come first.
    """
    known = [[run.settings for run in m.runs if run.settings] for m in methods]
    names = sorted({name for method in known for values in method for name in values})
    found = []
    for name in names:
        if is_incidental(name):
            continue
        by_method = [
            list(dict.fromkeys(without_seed(values.get(name, ABSENT)) for values in method))
            for method in known
        ]
        if len({value for values in by_method for value in values}) > 1:
            found.append(SettingDifference(name, by_method, name.startswith(METHOD_PREFIX)))
    return sorted(found, key=lambda difference: difference.is_method)


def warnings(methods: Sequence[Method], found: Sequence[SettingDifference]) -> list[str]:
    """What makes the comparison of these methods unfair, or uncertain, one sentence each."""
    sentences = []
    runs = [run for method in methods for run in method.runs]
    others = [difference for difference in found if not difference.is_method]
    if others and len(methods) > 1:
        sentences.append(
            f"{len(others)} setting(s) outside of `algorithm` differ between runs: what the "
            "methods differ in may come from there."
        )
    sentences.extend(
        f"Runs of {method.name} differ in {difference.name}."
        for number, method in enumerate(methods)
        for difference in found
        if len(difference.values[number]) > 1
    )
    if len(runs) > 1 and (unknown := [run.name for run in runs if run.settings is None]):
        sentences.append(f"Settings unknown, and so not compared: {', '.join(unknown)}.")
    if len({run.last_step for run in runs}) > 1:
        ends = ", ".join(f"{run.name} {run.last_step}" for run in runs)
        sentences.append(f"Runs end at different steps ({ends}): final numbers are of each end.")
    if len(methods) > 1:
        sentences.extend(_about_seeds(methods))
    return sentences


def _identity(run: Run) -> object:
    stem = without_seed(run.name)
    if run.settings is None:
        return stem if stem != run.name else run.metrics_file.resolve()
    own = frozenset(
        (name, without_seed(value))
        for name, value in run.settings.items()
        if not is_incidental(name)
    )
    return (stem if stem != run.name else None), own


def _name(group: Sequence[Run]) -> str:
    stems = {_SEED.sub("", run.name).strip("-_=/. ") for run in group}
    if len(stems) == 1 and (stem := stems.pop()):
        return stem
    estimator = (group[0].settings or {}).get("algorithm.adv_estimator", "")
    return estimator.strip('"') or group[0].name


def _about_seeds(methods: Sequence[Method]) -> list[str]:
    sentences = []
    if any(None in method.seeds for method in methods):
        sentences.append("Runs without a seed of their own in their method are not paired.")
    if len({frozenset(method.by_seed()) for method in methods}) > 1:
        seeds = "; ".join(f"{method.name} has {_shown_seeds(method)}" for method in methods)
        sentences.append(f"Methods have different seeds ({seeds}): only common ones are paired.")
    if max(len(method.runs) for method in methods) == 1:
        sentences.append("One run per method: nothing says how much of a difference is chance.")
    return sentences


def _shown_seeds(method: Method) -> str:
    seeds = sorted(method.by_seed(), key=int)
    named = ", ".join(seeds[:MAX_SEEDS_NAMED])
    return f"{named}, ..." if len(seeds) > MAX_SEEDS_NAMED else named or "none"
