"""What is run: methods, rewards, seeds and their order. The one place to change it."""

import dataclasses

SEEDS, FEW_SEEDS = 5, 2
REWARDS = {
    "graded": (),
    "binary": ("+reward.custom_reward_function.reward_kwargs.binary=True",),
}
BASELINE, EXACT, CONTROL = "grpo", "ms_grpo", "grpo_scaled"


@dataclasses.dataclass(frozen=True)
class Method:
    """Attributes:
    label: in tables and figures.
    estimator: verl's `algorithm.adv_estimator`.
    overrides: of the quickstart's command; all that this method differs in.
    """

    label: str
    estimator: str
    overrides: tuple[str, ...] = ()


def _ms_grpo(label: str, **settings: object) -> Method:
    overrides = tuple(f"+algorithm.ms_grpo.{name}={value}" for name, value in settings.items())
    return Method(label, "ms_grpo", overrides)


METHODS = {
    BASELINE: Method("GRPO", "grpo"),
    "dr_grpo": Method("Dr. GRPO", "grpo", ("algorithm.norm_adv_by_std_in_grpo=False",)),
    EXACT: _ms_grpo("MS-GRPO exact"),
    "ms_grpo_paper": _ms_grpo("MS-GRPO paper (M 4, K 8)", preset="paper"),
}
# Its learning rate is multiplied by the mean c of the exact run with the same reward and seed.
CONTROLS = {CONTROL: Method("GRPO, rate times c", "grpo")}
SENSITIVITY = {
    "ms_grpo_m2": _ms_grpo("M 2, all subgroups", num_scales=2, subgroups="all"),
    "ms_grpo_m4": _ms_grpo("M 4, all subgroups", num_scales=4, subgroups="all"),
    "ms_grpo_m4_k4": _ms_grpo("M 4, K 4", preset="paper", subgroups_per_scale=4),
    "ms_grpo_m4_k16": _ms_grpo("M 4, K 16", preset="paper", subgroups_per_scale=16),
}
ALL_METHODS = {**METHODS, **CONTROLS, **SENSITIVITY}


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run."""

    reward: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.reward}-{self.method}-seed{self.seed}"

    @property
    def overrides(self) -> tuple[str, ...]:
        return REWARDS[self.reward] + ALL_METHODS[self.method].overrides

    @property
    def exact_twin(self) -> "Run | None":
        """The run whose mean c this one needs."""
        return Run(self.reward, EXACT, self.seed) if self.method in CONTROLS else None


def plan() -> list[Run]:
    """All runs, so ordered that whatever has ended can be compared: seed by seed."""

    def of(methods: dict[str, Method], rewards: tuple[str, ...], seeds: range) -> list[Run]:
        return [Run(r, m, seed) for seed in seeds for m in methods for r in rewards]

    both = tuple(REWARDS)
    return [
        *of(METHODS | CONTROLS, both, range(FEW_SEEDS)),
        *of(SENSITIVITY, ("graded",), range(FEW_SEEDS)),
        *of(METHODS | CONTROLS, both, range(FEW_SEEDS, SEEDS)),
    ]
