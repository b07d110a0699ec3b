"""All checks of one launch, in order, and what they found."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from omegaconf import DictConfig

from verl_msgrpo.preflight.batches import check_batches
from verl_msgrpo.preflight.capacity import Card, check_disk, check_memory
from verl_msgrpo.preflight.compose import compose_config
from verl_msgrpo.preflight.data_rows import DataFile, check_data, first_row, read_data
from verl_msgrpo.preflight.estimator import check_estimator
from verl_msgrpo.preflight.files import check_files
from verl_msgrpo.preflight.lengths import check_lengths
from verl_msgrpo.preflight.megatron_options import check_megatron_options
from verl_msgrpo.preflight.memory import MemoryEstimate, estimate
from verl_msgrpo.preflight.model_facts import model_facts
from verl_msgrpo.preflight.names import check_names
from verl_msgrpo.preflight.numbers import check_numbers
from verl_msgrpo.preflight.parallelism import check_parallelism
from verl_msgrpo.preflight.problems import ERROR, Problem
from verl_msgrpo.preflight.reward import check_reward
from verl_msgrpo.preflight.run import Run
from verl_msgrpo.preflight.services import check_services
from verl_msgrpo.preflight.settings import A, text
from verl_msgrpo.preflight.verl_validation import check_verl

# Checks of a run whose numbers are numbers.
RUN_CHECKS: Sequence[Callable[[Run], Iterator[Problem]]] = (
    check_parallelism,
    check_batches,
    check_lengths,
    check_estimator,
    check_megatron_options,
    check_disk,
)


@dataclass(frozen=True)
class Report:
    """What was found. `run` and `memory` are None where they could not be made out."""

    problems: list[Problem]
    notes: list[str]
    """What was not checked, and why."""
    run: Run | None = None
    memory: MemoryEstimate | None = None
    card: Card | None = None
    files: Sequence[DataFile] = ()

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == ERROR]


def preflight(overrides: Sequence[str], card: Card | None = None) -> Report:
    """Composes and checks what `python -m verl.trainer.main_ppo OVERRIDES` would run.

    No GPU, Ray or weights. The reward function is loaded and called once, in this process; each
    search tool's server is asked once.

    Raises:
        UserError: verl is not installed.
    """
    config, problems = compose_config(overrides)
    if config is None:
        return Report(problems, ["nothing else is checked before these overrides are right"])
    report = check_config(config, card)
    return dataclasses.replace(report, problems=_sorted([*problems, *report.problems]))


def check_config(config: DictConfig, card: Card | None = None) -> Report:
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
        problems += check_reward(config, first_row(files))
    run = None if numbers else Run(config, model_facts(text(config, f"{A}.model.path") or ""))
    memory = None
    if run is None:
        notes.append(
            "layout, batches, lengths, the estimator's settings, rows, memory and disk are checked "
            "once the numbers are right"
        )
    else:
        for check in RUN_CHECKS:
            problems += check(run)
        problems += check_data(run, files)
        problems += _not_said_yet(check_verl(config), problems)
        memory = estimate(run)
        notes += _not_checked(run, memory, card)
        if memory is not None and card is not None and not run.gpus % run.model_parallel:
            problems += check_memory(run, memory, card)
    problems += services.result()
    pool.shutdown(wait=False)
    return Report(_sorted(problems), notes, run, memory, card, files)


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


def _not_checked(run: Run, memory: MemoryEstimate | None, card: Card | None) -> list[str]:
    notes = []
    if run.model is None:
        notes.append(
            f"the shape of {run.model_path} is unknown (no config.json here, in the hub's cache or "
            "in the table): heads, layers, lengths, memory and disk are not checked"
        )
    elif memory is None:
        notes.append("memory is estimated for dense models under Megatron or FSDP only")
    if memory is not None and card is None:
        notes.append("memory is not compared with a card: --gpu h100, or --gpu-memory-gib N")
    return notes


def _sorted(problems: Sequence[Problem]) -> list[Problem]:
    """Errors first; each only once."""
    distinct = list(dict.fromkeys(problems))
    return sorted(distinct, key=lambda problem: problem.severity != ERROR)
