"""The settings of the estimator, as users type them under `algorithm.ms_grpo` in Hydra."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Final, Self

from verl_msgrpo.common.numbers import integer, not_allowed, real

SUBGROUPS: Final = ("all", "diverse", "auto")
PRESETS: Final = {"paper": {"num_scales": 4, "subgroups_per_scale": 8, "subgroups": "diverse"}}
MAX_SUBGROUPS: Final = 1024
MAX_TERMS: Final = 2**22  # keeps one group's tables below 1 GiB


@dataclasses.dataclass(frozen=True)
class MSGRPOConfig:
    """Settings of Multi-Scale GRPO; checked when built, hashable, never changed afterwards.

    With the defaults every subgroup of every scale counts, as long as that fits `max_terms`.

    Attributes:
        scales: explicit subgroup sizes, each >= 2, for example (2, 4, 8). Sizes above the size of
            a group become that size; the weights of scales that coincide are added. None: see
            `num_scales`.
        num_scales: M >= 1, that many scales spread evenly from `min_scale` to the group size
            (halves round up; M = 1 is the group size alone, GRPO). Where a group has fewer sizes
            than M, all of them are taken. None: every size from `min_scale` on.
        min_scale: smallest scale, >= 2; has no meaning beside `scales`.
        scale_weights: one weight >= 0 per entry of `scales`, or per one of the M dilated scales;
            they are normalised to sum to 1. None: uniform.
        subgroups: "all" (exact), "diverse" (a few subgroups per scale, far apart) or "auto": "all"
            if every group of the call fits `max_terms`, else "diverse" for the whole call.
            None: "auto", or what the preset says.
        subgroups_per_scale: K, 1 .. 1024, for "diverse"; more are taken where K cannot cover
            everybody, fewer where there are fewer. None: 8.
        normalize_by_std: divide by the standard deviation of the subgroup. None: follow verl's
            `norm_adv_by_std_in_grpo`; True where there is no verl.
        epsilon: >= 0, added to the standard deviation, in units of the reward.
        seed: >= 0, of the search for diverse designs.
        max_terms: budget of "all": how many different subgroups (by their reward values) one
            group may have, 1 .. 2**22 (fewer where it has more than
            32 distinct values, to bound the memory).
        preset: "paper" is M = 4, K = 8, "diverse". Fields that are given win over the preset;
            None counts as not given.

    Raises:
        ValueError: in one line that names the field and what is allowed.

    The number of scales, K and the weights are those of the paper (OpenReview submission 4604,
    2025). Rounding, adding of weights, and the budget are our choice.
    """

    scales: Sequence[int] | None = None
    num_scales: int | None = None
    min_scale: int = 2
    scale_weights: Sequence[float] | None = None
    subgroups: str | None = None
    subgroups_per_scale: int | None = None
    normalize_by_std: bool | None = None
    epsilon: float = 1e-6
    seed: int = 0
    max_terms: int = 2**16
    preset: str | None = None

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, value in _checked(values).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_mapping(cls, settings: object) -> Self:
        """Builds the configuration from a mapping, as a configuration file gives it, or None.

        Numbers, booleans and lists may come as text ("4", "1e-6", "true", "[2, 4]"); None, "null"
        and "none" leave a field at its default.

        Raises:
            ValueError: unknown name or value that is not allowed, in one line.
        """
        if settings is None:
            return cls()
        if not isinstance(settings, Mapping):
            raise ValueError(f"ms_grpo: allowed is a mapping of settings, got {settings!r}")
        names = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in names:
                shown = name if isinstance(name, str) and name.isidentifier() else repr(name)
                raise ValueError(f"ms_grpo.{shown[:80]}: unknown; allowed are {', '.join(names)}")
        given = {name: plain_value(value) for name, value in settings.items()}
        given = {name: value for name, value in given.items() if value is not None}
        return cls(**given)  # type: ignore[arg-type]  # types are checked by __post_init__


def plain_value(value: object) -> object:
    """Text that spells a number, boolean, list or null becomes that; all else stays."""
    if isinstance(value, list | tuple):
        return tuple(plain_value(item) for item in value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ("null", "none", "true", "false"):
        text = text.lower().replace("none", "null")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _checked(values: Mapping[str, object]) -> dict[str, object]:
    """The fields in their final form, presets and defaults filled in; raises ValueError."""
    fields = dict(values)
    preset = fields["preset"]
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise _error("preset", " or ".join([*PRESETS, "null"]), preset)
        for name, value in PRESETS[preset].items():
            beside_scales = name == "num_scales" and fields["scales"] is not None
            if fields[name] is None and not beside_scales:
                fields[name] = value
    for name, value in (("subgroups", "auto"), ("subgroups_per_scale", 8)):
        if fields[name] is None:
            fields[name] = value

    if not isinstance(fields["subgroups"], str) or fields["subgroups"] not in SUBGROUPS:
        raise _error("subgroups", ", ".join(SUBGROUPS), fields["subgroups"])
    if not isinstance(fields["normalize_by_std"], bool | None):
        raise _error("normalize_by_std", "true, false or null", fields["normalize_by_std"])
    fields["min_scale"] = _integer("min_scale", fields["min_scale"], 2)
    fields["subgroups_per_scale"] = _integer(
        "subgroups_per_scale", fields["subgroups_per_scale"], 1, MAX_SUBGROUPS
    )
    fields["seed"] = _integer("seed", fields["seed"], 0)
    fields["max_terms"] = _integer("max_terms", fields["max_terms"], 1, MAX_TERMS)
    fields["epsilon"] = _non_negative("epsilon", fields["epsilon"])
    scales = _sequence("scales", "a list of integers >= 2", fields["scales"])
    if scales is not None:
        if fields["num_scales"] is not None:
            raise _error("num_scales", "null when scales are listed", fields["num_scales"])
        if fields["min_scale"] != 2:
            raise _error("min_scale", "2 when scales are listed", fields["min_scale"])
        fields["scales"] = scales = tuple(_integer("scales", scale, 2) for scale in scales)
    if fields["num_scales"] is not None:
        fields["num_scales"] = _integer("num_scales", fields["num_scales"], 1)
    weights = _sequence("scale_weights", "a list of numbers >= 0", fields["scale_weights"])
    if weights is not None:
        expected = len(scales) if scales is not None else fields["num_scales"]
        if expected is None:
            raise _error("scale_weights", "null unless scales or num_scales are given", weights)
        if len(weights) != expected:
            raise _error("scale_weights", f"{expected} numbers, one per scale", weights)
        weights = tuple(_non_negative("scale_weights", weight) for weight in weights)
        if not any(weights):
            raise _error("scale_weights", "numbers >= 0 that are not all 0", weights)
        fields["scale_weights"] = weights
    return fields


def _error(name: str, allowed: str, got: object) -> ValueError:
    return not_allowed(f"ms_grpo.{name}", allowed, got)


def _integer(name: str, value: object, low: int, high: int | None = None) -> int:
    return integer(f"ms_grpo.{name}", value, low, high)


def _non_negative(name: str, value: object) -> float:
    return real(f"ms_grpo.{name}", value, 0)


def _sequence(name: str, allowed: str, value: object) -> tuple[object, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        raise _error(name, allowed, value)
    try:
        items = tuple(value)
    except TypeError:  # an array without dimensions
        raise _error(name, allowed, value) from None
    if not items:
        raise _error(name, allowed, value)
    return items
