"""What differs between methods beside the method: an unfair comparison has to show."""

import dataclasses
from collections.abc import Sequence

from verl_msgrpo.report.methods import Method, is_incidental, without_seed

METHOD_PREFIX = "algorithm."
ABSENT = "(not set)"
MAX_SEEDS_NAMED = 10


@dataclasses.dataclass(frozen=True)
class Difference:
    """A setting that not all runs agree in.

    values: the different values of each method, in the order of its runs; none where the
        settings of no run are known.
    is_method: stands in `algorithm`, where methods differ by intent.
    """

    name: str
    values: list[list[str]]
    is_method: bool


def differences(methods: Sequence[Method]) -> list[Difference]:
    """Settings that differ between any two runs whose settings are known.

    Seeds, names and output folders are left out, and so are paths that differ in a `seed1` only.
    Those outside of `algorithm` come first.
    """
    known = [[run.settings.values for run in m.runs if run.settings] for m in methods]
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
            found.append(Difference(name, by_method, name.startswith(METHOD_PREFIX)))
    return sorted(found, key=lambda difference: difference.is_method)


def warnings(methods: Sequence[Method], found: Sequence[Difference]) -> list[str]:
    """What makes the comparison of these methods unfair, or uncertain, a sentence each."""
    sentences = []
    runs = [run for method in methods for run in method.runs]
    others = [difference for difference in found if not difference.is_method]
    if others and len(methods) > 1:
        sentences.append(
            f"{len(others)} setting(s) outside of `algorithm` differ between runs: what the "
            "methods differ in may come from there."
        )
    for method in methods:
        for difference, values in ((d, d.values[methods.index(method)]) for d in found):
            if len(values) > 1:
                sentences.append(f"Runs of {method.name} differ in {difference.name}.")
    if len(runs) > 1 and (unknown := [run.name for run in runs if run.settings is None]):
        sentences.append(f"Not compared, as no settings were found: {', '.join(unknown)}.")
    if len({run.last_step for run in runs}) > 1:
        ends = ", ".join(f"{run.name} {run.last_step}" for run in runs)
        sentences.append(f"Runs end at different steps ({ends}): final numbers are of each end.")
    if len(methods) > 1:
        sentences.extend(_about_seeds(methods))
    return sentences


def _about_seeds(methods: Sequence[Method]) -> list[str]:
    sentences = []
    if any(None in method.seeds for method in methods):
        sentences.append("Runs without a seed of their own in their method are not paired.")
    if len({frozenset(method.by_seed()) for method in methods}) > 1:
        seeds = "; ".join(f"{method.name} has {_shown_seeds(method)}" for method in methods)
        sentences.append(f"Methods have different seeds ({seeds}): only common ones are paired.")
    if max(len(method.runs) for method in methods) == 1:
        sentences.append("One run a method: nothing says how much of a difference is chance.")
    return sentences


def _shown_seeds(method: Method) -> str:
    seeds = sorted(method.by_seed(), key=int)
    named = ", ".join(seeds[:MAX_SEEDS_NAMED])
    return f"{named}, ..." if len(seeds) > MAX_SEEDS_NAMED else named or "none"
