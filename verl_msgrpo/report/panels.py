"""Which of verl's metrics are shown, under which heading, and what they say."""

import dataclasses
from collections.abc import Sequence

from verl_msgrpo.report.methods import Method
from verl_msgrpo.report.runs import Series

REWARD, MS_GRPO, RESPONSES, OPTIMISATION, TIME = (
    *("Reward and accuracy", "MS-GRPO", "Responses and searches"),
    *("KL, entropy and gradient", "Time"),
)
SECTIONS = (REWARD, MS_GRPO, RESPONSES, OPTIMISATION, TIME)
VALIDATION = "val-core/"
PHASE = "timing_s/"
STEP_SECONDS = "timing_s/step"
MAX_PANELS = 30  # of a section; a validation set with many sources has one for each

# metric -> (section, title, what it says)
_FIXED: dict[str, tuple[str, str, str]] = {
    "critic/score/mean": (REWARD, "Training reward", "mean score of a step's rollouts"),
    "ms_grpo/homogeneous_share": (
        *(MS_GRPO, "Groups without signal"),
        "share of groups whose rewards are all equal",
    ),
    "ms_grpo/scale": (MS_GRPO, "Scale c", "the advantage is c times GRPO's, as nearly as it goes"),
    "ms_grpo/correction": (
        *(MS_GRPO, "Correction"),
        "share of the advantage that is no rescaled GRPO; 0 for binary rewards",
    ),
    "ms_grpo/sign_flips": (
        *(MS_GRPO, "Sign flips"),
        "share of responses whose advantage has not GRPO's sign",
    ),
    "ms_grpo/distinct_rewards": (MS_GRPO, "Distinct rewards", "in a group with signal"),
    "ms_grpo/subgroups": (MS_GRPO, "Subgroups", "averaged over in a group"),
    "ms_grpo/exact_share": (MS_GRPO, "Exact groups", "share averaged over all subgroups"),
    "ms_grpo/design_noise": (MS_GRPO, "Design noise", "what a choice of few subgroups adds"),
    "ms_grpo/adv_abs_mean": (MS_GRPO, "Size of advantages", "mean |advantage|"),
    "ms_grpo/grpo_adv_abs_mean": (MS_GRPO, "Size under GRPO", "mean |advantage| that GRPO gives"),
    "ms_grpo/groups": (MS_GRPO, "Groups", "in a step"),
    "response_length/mean": (RESPONSES, "Response length", "mean tokens"),
    "response_length/clip_ratio": (RESPONSES, "Cut responses", "share at the length limit"),
    "search/per_rollout/mean": (RESPONSES, "Searches", "per rollout"),
    "search/failed_share": (RESPONSES, "Failed searches", "share of searches"),
    "search/malformed_share": (RESPONSES, "Malformed calls", "share of calls and searches"),
    "num_turns/mean": (RESPONSES, "Turns", "question, observations and responses"),
    "actor/kl_loss": (OPTIMISATION, "KL to the reference", "in the loss"),
    "actor/reward_kl_penalty": (OPTIMISATION, "KL to the reference", "in the reward"),
    "actor/ppo_kl": (OPTIMISATION, "KL to the old policy", "within a step"),
    "rollout_corr/kl": (OPTIMISATION, "KL of rollout and training", "of the same weights"),
    "actor/entropy": (OPTIMISATION, "Entropy", "nats a token"),
    "actor/grad_norm": (OPTIMISATION, "Gradient norm", "before clipping"),
    STEP_SECONDS: (TIME, "Seconds a step", "validation not included"),
}
_FINAL = (
    *("critic/score/mean", "response_length/mean", "search/per_rollout/mean"),
    *("actor/kl_loss", "actor/reward_kl_penalty", "actor/entropy", "actor/grad_norm"),
    STEP_SECONDS,
)


@dataclasses.dataclass(frozen=True)
class Panel:
    """One metric over steps."""

    metric: str
    section: str
    title: str
    says: str


def is_shown(metric: str) -> bool:
    """Whether a metric is in any panel, table or chart."""
    return metric in _FIXED or metric.startswith((VALIDATION, PHASE))


def panels(methods: Sequence[Method]) -> list[Panel]:
    """A panel for each metric that a run has, section by section."""
    present = {metric for method in methods for run in method.runs for metric in run.metrics}
    found = [Panel(metric, *about) for metric, about in _FIXED.items() if metric in present]
    for metric in sorted(name for name in present if name.startswith(VALIDATION)):
        found.append(Panel(metric, REWARD, validation_title(metric), "on the validation data"))
    return found


def validation_title(metric: str) -> str:
    """`val-core/SOURCE/acc/mean@1` as "SOURCE: acc mean@1"; a source may have slashes in it."""
    source, _, rest = metric.removeprefix(VALIDATION).rpartition("/")
    source, _, variable = source.rpartition("/")
    return f"{source}: {variable} {rest}" if source else metric


def absent(methods: Sequence[Method]) -> list[str]:
    """Metrics that no run has."""
    return [
        metric
        for metric in _FIXED
        if not any(metric in run.metrics for method in methods for run in method.runs)
    ]


def final_metrics(found: Sequence[Panel]) -> list[Panel]:
    """The panels whose last values are compared: validation first."""
    validation = [panel for panel in found if panel.metric.startswith(VALIDATION)]
    return [*validation, *(panel for panel in found if panel.metric in _FINAL)]


def series_of(method: Method, metric: str) -> list[Series]:
    """The metric's series in each run of the method that has it."""
    return [run.metrics[metric] for run in method.runs if metric in run.metrics]
