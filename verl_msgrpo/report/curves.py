"""What is shown of verl's metrics: which ones, their curves over seeds, the seconds of each phase.

A panel is one metric with its title and what it says. Its curve is the mean over a method's seeds
at each step, and how far the seeds are apart.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from verl_msgrpo.report.methods import Method
from verl_msgrpo.report.runs import Run, Series

REWARD, MS_GRPO, RESPONSES, OPTIMISATION, TIME = (
    *("Reward and accuracy", "MS-GRPO", "Responses and searches"),
    *("KL, entropy and gradient", "Time"),
)
SECTIONS = (REWARD, MS_GRPO, RESPONSES, OPTIMISATION, TIME)
VALIDATION = "val-core/"
PHASE = "timing_s/"
STEP_SECONDS = "timing_s/step"
MAX_PANELS = 30  # of a section; a validation set with many sources has one for each
OTHER = "other"
OUTSIDE_OF_STEP = ("testing",)
MAX_PHASES = 12
_VALIDATION_NAME = re.compile(
    r"val-core/(?P<source>.+)/(?P<variable>[^/]+)"
    r"/(?P<kind>mean|best|maj)@(?P<count>\d+)(?:/(?P<part>mean|std))?"
)

# metric -> (section, title, what it says). What verl computes was looked up in verl 0.9.1.
_FIXED: dict[str, tuple[str, str, str]] = {
    "critic/score/mean": (
        REWARD,
        "Training reward",
        "mean score of a step's responses, empty ones left out",
    ),
    "ms_grpo/homogeneous_share": (
        *(MS_GRPO, "Groups without signal"),
        "share of groups whose rewards are all equal",
    ),
    "ms_grpo/scale": (MS_GRPO, "Scale c", "the advantage is c times GRPO's, by least squares"),
    "ms_grpo/correction": (
        *(MS_GRPO, "Correction"),
        "share of the advantage that is not GRPO rescaled; 0 for binary rewards",
    ),
    "ms_grpo/sign_flips": (
        *(MS_GRPO, "Sign flips"),
        "share of responses whose advantage has the opposite sign of GRPO's",
    ),
    "ms_grpo/distinct_rewards": (MS_GRPO, "Distinct rewards", "in a group with signal"),
    "ms_grpo/subgroups": (MS_GRPO, "Subgroups", "averaged over in a group with signal"),
    "ms_grpo/exact_share": (
        *(MS_GRPO, "Exact groups"),
        "share of groups with signal that are averaged over all subgroups",
    ),
    "ms_grpo/design_noise": (
        *(MS_GRPO, "Design noise"),
        "what a choice of few subgroups adds, relative to the advantage",
    ),
    "ms_grpo/adv_abs_mean": (MS_GRPO, "Size of advantages", "mean |advantage|"),
    "ms_grpo/grpo_adv_abs_mean": (MS_GRPO, "Size under GRPO", "mean |advantage| that GRPO gives"),
    "ms_grpo/groups": (MS_GRPO, "Groups", "in a step"),
    "response_length/mean": (
        *(RESPONSES, "Response length"),
        "mean tokens, observations included",
    ),
    "response_length/max": (
        *(RESPONSES, "Longest response"),
        "tokens; where it is data.max_response_length, responses may have been cut",
    ),
    "response_length/clip_ratio": (
        *(RESPONSES, "As long as the longest"),
        "share of responses as long as the step's longest one, whether or not that was cut",
    ),
    "search/ended/truncated_share": (
        *(RESPONSES, "Cut rollouts"),
        "share that the length limit ended",
    ),
    "search/per_rollout/mean": (RESPONSES, "Searches", "per rollout"),
    "search/failed_share": (RESPONSES, "Failed searches", "share of searches"),
    "search/malformed_share": (RESPONSES, "Malformed calls", "share of calls and searches"),
    "num_turns/mean": (RESPONSES, "Turns", "question, observations and responses"),
    "actor/kl_loss": (
        *(OPTIMISATION, "KL to the reference"),
        "in the loss, before its coefficient",
    ),
    "actor/reward_kl_penalty": (
        *(OPTIMISATION, "KL to the reference"),
        "in the reward, per token, before its coefficient",
    ),
    "actor/ppo_kl": (
        *(OPTIMISATION, "KL to the old policy"),
        "estimate per token; 0 where a step is one update",
    ),
    "rollout_corr/kl": (
        *(OPTIMISATION, "KL of rollout and training"),
        "estimate per token: log-probability in the rollout minus that in the trainer",
    ),
    "actor/entropy": (
        *(OPTIMISATION, "Entropy"),
        "before the update; nats per token if loss_agg_mode is token-mean",
    ),
    "actor/grad_norm": (OPTIMISATION, "Gradient norm", "before clipping, mean over updates"),
    STEP_SECONDS: (TIME, "Seconds per step", "validation not included"),
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
        found.append(Panel(metric, REWARD, *_about_validation(metric)))
    return found


def _about_validation(metric: str) -> tuple[str, str]:
    """Title and meaning of `val-core/SOURCE/acc/mean@1`; a source may have slashes in it."""
    found = _VALIDATION_NAME.fullmatch(metric)
    if found is None:
        return metric, "on the validation data"
    kind, count, part = found["kind"], found["count"], found["part"]
    title = f"{found['source']}: {found['variable']} {kind}@{count}"
    of = "1 sample" if count == "1" else f"{count} samples"
    says = {
        "mean": f"validation: mean over {of} per prompt",
        "best": f"validation: best of {of}, drawn with replacement",
        "maj": f"validation: most frequent answer of {of}, drawn with replacement",
    }[kind]
    if part == "std":
        return f"{title} std", f"{says}; its standard deviation over the draws"
    return title, says


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


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """S steps at which every seed has a value.

    Attributes:
        steps: (S,) int64, ascending.
        mean, low, high: (S,) float64 over seeds; low and high are the smallest and the largest.
    """

    steps: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


def curve(seeds: Sequence[Series]) -> Curve:
    """One curve of one or more seeds."""
    steps = sorted(set.intersection(*(set(series) for series in seeds)))
    values = np.array([[series[step] for step in steps] for series in seeds])
    return Curve(
        steps=np.array(steps, dtype=np.int64),
        mean=values.mean(axis=0),
        low=values.min(axis=0),
        high=values.max(axis=0),
    )


def phase_seconds(method: Method) -> dict[str, float]:
    """Mean seconds per training step of each phase, over steps and runs, the largest first.

    verl times its phases within `timing_s/step`, and validation (`testing`) apart from it; what
    of a step no phase accounts for, and the smallest phases beyond 12, is `other`. Empty where no
    run has timings.
    """
    runs = [run for run in method.runs if STEP_SECONDS in run.metrics]
    if not runs:
        return {}
    names = {metric for run in runs for metric in run.metrics if _is_phase(metric)}
    means = {
        metric.removeprefix(PHASE): sum(_per_step(run, metric) for run in runs) / len(runs)
        for metric in names
    }
    ordered = sorted(means, key=lambda name: (-means[name], name))
    shown = {name: means[name] for name in ordered[:MAX_PHASES]}
    whole = sum(_per_step(run, STEP_SECONDS) for run in runs) / len(runs)
    within = sum(value for name, value in shown.items() if name not in OUTSIDE_OF_STEP)
    return {**shown, OTHER: max(whole - within, 0.0)}


def phase_names(methods: Sequence[dict[str, float]]) -> list[str]:
    """The phases of all methods, in the order of the first one that has them."""
    return list(dict.fromkeys(name for phases in methods for name in phases))


def _is_phase(metric: str) -> bool:
    """Parts of phases have a slash in their names."""
    return metric.startswith(PHASE) and metric != STEP_SECONDS and "/" not in metric[len(PHASE) :]


def _per_step(run: Run, metric: str) -> float:
    return sum(run.metrics.get(metric, {}).values()) / len(run.metrics[STEP_SECONDS])
