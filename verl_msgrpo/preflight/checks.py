"""All checks of one launch, in order, and what they found."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from omegaconf import DictConfig

from verl_msgrpo.preflight.compose import check_verl, compose_config
from verl_msgrpo.preflight.estimator import check_estimator
from verl_msgrpo.preflight.files import DataFile, check_data, check_files, first_row, read_data
from verl_msgrpo.preflight.launch import Launch, model_facts
from verl_msgrpo.preflight.layout import check_batches, check_lengths, check_parallelism
from verl_msgrpo.preflight.memory import Card, MemoryEstimate, check_disk, check_memory, estimate
from verl_msgrpo.preflight.names import check_megatron, check_names, unchecked_options
from verl_msgrpo.preflight.reward import check_reward, isolation_of_programs, load_reward
from verl_msgrpo.preflight.services import check_services
from verl_msgrpo.preflight.settings import ERROR, MODEL, Problem, check_numbers, text

# Checks of a launch whose numbers are numbers.
LAUNCH_CHECKS: Sequence[Callable[[Launch], Iterator[Problem]]] = (
    check_parallelism,
    check_batches,
    check_lengths,
    check_estimator,
    check_megatron,
    check_disk,
)


@dataclass(frozen=True)
class Findings:
    """What was found. `launch` and `memory` are None where they could not be made out."""

    problems: list[Problem]
    notes: list[str]
    """What was not checked, and why."""
    launch: Launch | None = None
    memory: MemoryEstimate | None = None
    card: Card | None = None
    files: Sequence[DataFile] = ()
    programs: str | None = None
    """What isolates the programs that the reward runs; None where it runs none."""

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == ERROR]


def preflight(overrides: Sequence[str], card: Card | None = None) -> Findings:
    """Composes and checks what `python -m verl.trainer.main_ppo OVERRIDES` would run.

    No GPU, Ray or weights. The reward function is loaded and called, in this process; each
    search tool's server is asked once.

    Raises:
        UserError: verl is not installed.
    """
    config, problems = compose_config(overrides)
    if config is None:
        return Findings(problems, ["everything else: it is checked once these overrides are right"])
    found = check_config(config, card)
    return dataclasses.replace(found, problems=_sorted([*problems, *found.problems]))


def check_config(config: DictConfig, card: Card | None = None) -> Findings:
    """Checks a composed configuration whose interpolations are resolved. See `preflight`."""
    problems: list[Problem] = []
    notes: list[str] = []
    pool = ThreadPoolExecutor(max_workers=1)
    # The server may take its time: it is asked while verl is imported.
    services: Future[list[Problem]] = pool.submit(lambda: list(check_services(config)))
    numbers = list(check_numbers(config))
    problems += numbers
    problems += check_names(config)
    problems += check_files(config)
    files, unreadable = read_data(config)
    problems += unreadable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _import_verl()
        reward, unloaded = load_reward(config)
        problems += unloaded
        if reward is not None:
            problems += check_reward(reward, first_row(files))
    launch = None if numbers else Launch(config, model_facts(text(config, f"{MODEL}.path") or ""))
    memory = None
    if launch is None:
        notes.append(
            "layout, batches, lengths, the estimator's settings, rows, memory and disk: they are "
            "checked once the numbers are right"
        )
    else:
        for check in LAUNCH_CHECKS:
            problems += check(launch)
        problems += check_data(launch, files)
        problems += _not_said_yet(check_verl(config), problems)
        memory = estimate(launch)
        notes += _not_checked(launch, memory, card)
        if memory is not None and card is not None and not launch.gpus % launch.model_parallel:
            problems += check_memory(launch, memory, card)
    problems += services.result()
    pool.shutdown(wait=False)
    programs = isolation_of_programs(reward) if reward is not None else None
    return Findings(_sorted(problems), notes, launch, memory, card, files, programs)


def _import_verl() -> None:
    """Loads verl, and with it the plugins that register names."""
    import verl  # noqa: F401


def _not_said_yet(found: Iterator[Problem], problems: Sequence[Problem]) -> list[Problem]:
    """What verl rejects and our checks, which show the sums, have not said."""
    ours = any(problem.severity == ERROR for problem in problems)
    covered = (
        "must be divisible by",
        "must be >= actor.ppo_mini_batch_size",
        "micro_batch_size",
        "not supported",  # the dtype
        "pipeline_model_parallel_size > 1",
    )
    return [p for p in found if not (ours and any(part in p.message for part in covered))]


def _not_checked(launch: Launch, memory: MemoryEstimate | None, card: Card | None) -> list[str]:
    notes = []
    if launch.model is None:
        notes.append(
            f"heads, layers, lengths, memory and disk: the shape of {launch.model_path} is unknown "
            "(there is no config.json here or in the hub's cache, and it is not in the table)"
        )
    elif memory is None:
        notes.append("memory: it is estimated for dense models under Megatron or FSDP only")
    if memory is not None and card is None:
        notes.append("memory against a card: name one with --gpu h100, or --gpu-memory-gib N")
    if (unchecked := unchecked_options(launch)) is not None:
        notes.append(unchecked)
    return notes


def _sorted(problems: Sequence[Problem]) -> list[Problem]:
    """Errors first; each only once."""
    distinct = list(dict.fromkeys(problems))
    return sorted(distinct, key=lambda problem: problem.severity != ERROR)
