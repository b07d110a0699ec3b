"""`verl-msgrpo prepare`: a task's public data as verl's training and validation rows."""

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from verl_msgrpo.common.numbers import integer_argument
from verl_msgrpo.errors import UserError
from verl_msgrpo.tasks.prompts import read_template
from verl_msgrpo.tasks.registry import LIVECODEBENCH_FILES, SEARCH_AGENTS, TASKS, Task, with_agent
from verl_msgrpo.tasks.rows import Row, RowWriter, output_files, verl_row
from verl_msgrpo.tasks.selection import Candidate, Counts, candidates, distinct, limited, usable

NONE = "none"
_SHOWN_CHARS = 400  # of each text of the sample


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "A SOURCE is a .parquet, .jsonl or .json file; a folder; a data set of the hub,\n"
        "owner/name[/config][@revision][:split]; or a file there, hf://datasets/owner/name/path.\n"
        "Several are read one after the other; with `none` the file is not written. Defaults:\n"
        + "\n".join(_defaults(task) for task in TASKS.values())
    )
    parser.add_argument("task", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder for train.parquet and validation.parquet",
    )
    parser.add_argument(
        "--train", nargs="+", metavar="SOURCE", help="the training rows (default: see below)"
    )
    parser.add_argument(
        "--validation", nargs="+", metavar="SOURCE", help="the validation rows (default: see below)"
    )
    parser.add_argument(
        "--limit", type=integer_argument(1), metavar="N", help="at most so many rows per file"
    )
    parser.add_argument(
        "--seed", type=int, help="with --limit: take a random sample, not the first rows"
    )
    parser.add_argument(
        "--prompt-template", type=Path, metavar="FILE", help="your own prompt, with {problem} in it"
    )
    parser.add_argument(
        "--skip-bad-rows",
        action="store_true",
        help="leave out and count rows that cannot be used, instead of stopping at the first",
    )
    parser.add_argument(
        "--agent-loop",
        choices=SEARCH_AGENTS,
        help="hotpotqa only: the agent loop, which also decides the prompt "
        "(default: search_tool_agent)",
    )
    contests = parser.add_argument_group("livecodebench only: which rows are for validation")
    contests.add_argument(
        "--release",
        choices=LIVECODEBENCH_FILES,
        help="the release; it includes the earlier ones (default: v6)",
    )
    contests.add_argument(
        "--contest-from", type=_date, metavar="YYYY-MM-DD", help="first day of the contests"
    )
    contests.add_argument(
        "--contest-to", type=_date, metavar="YYYY-MM-DD", help="last day of the contests"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the files; raises UserError for bad input."""
    job = _job(args)
    held_out: set[bytes] = set()
    with output_files(args.out) as files:
        for split, names in job.sources.items():  # validation first: training leaves its rows out
            counts = Counts(job.skip_bad_rows)
            dates = job.dates if split == "validation" else ("", "")
            problems = candidates(job.task, names, split, dates, counts)
            problems = usable(distinct(problems, held_out, counts), counts)
            writer = files.open(f"{split}.parquet")
            kept = limited(problems, job.limit, job.seed)
            held_out, sample = _write(job, split, kept, writer, counts)
            if sample is None:
                raise UserError(f"{', '.join(names)}: nothing to write: {counts}")
            print(f"{split}: {', '.join(names)}: {counts}")
    _show(sample)
    for split in job.sources:
        print(args.out / f"{split}.parquet")
    return 0


@dataclass(frozen=True)
class Job:
    """What is asked for. sources: the splits to write, in that order, and where from."""

    task: Task
    sources: dict[str, list[str]]
    template: str
    limit: int | None
    seed: int | None
    skip_bad_rows: bool
    dates: tuple[str, str]  # first and last day of the validation's contests, as text; "" is open


def _job(args: argparse.Namespace) -> Job:
    task = TASKS[args.task]
    if args.agent_loop:
        if task.agent_name not in SEARCH_AGENTS:
            raise UserError(f"--agent-loop is for hotpotqa, not for {task.name}")
        task = with_agent(task, args.agent_loop)
    contest = args.release or args.contest_from or args.contest_to
    if contest and task.name != "livecodebench":
        raise UserError(f"--release and --contest-from/-to are for livecodebench, not {task.name}")
    if args.release and args.validation:
        raise UserError("--release chooses among the default files: give it without --validation")
    if args.seed is not None and args.limit is None:
        raise UserError("--seed chooses the rows of --limit: give both")
    validation = args.validation or list(task.validation)
    if args.release:
        releases = list(LIVECODEBENCH_FILES)
        validation = validation[: releases.index(args.release) + 1]
    sources = {"validation": validation, "train": args.train or list(task.train)}
    sources = {split: names for split, names in sources.items() if names != [NONE]}
    if not sources:
        raise UserError("nothing to write: --train and --validation are both none")
    return Job(
        task=task,
        sources=sources,
        template=read_template(args.prompt_template) if args.prompt_template else task.template,
        limit=args.limit,
        seed=args.seed,
        skip_bad_rows=args.skip_bad_rows,
        dates=(args.contest_from or "", args.contest_to or ""),
    )


def _write(
    job: Job, split: str, kept: Iterable[Candidate], writer: RowWriter, counts: Counts
) -> tuple[set[bytes], Row | None]:
    """Writes the rows; the keys of their problems, and the first row."""
    keys: set[bytes] = set()
    first = None
    for found in kept:
        row = verl_row(
            found.problem,
            data_source=found.data_source,
            origin=found.origin,
            ability=job.task.ability,
            agent_name=job.task.agent_name,
            template=job.template,
            split=split,
            index=counts.written,
        )
        writer.add(row, len(found.problem.text) + len(found.problem.ground_truth))
        first = first or row
        keys.add(found.problem.key())
        counts.written += 1
    return keys, first


def _show(row: Row | None) -> None:
    print("sample:")
    print(json.dumps(_shortened(row), indent=2, ensure_ascii=False))


def _shortened(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    if isinstance(value, str) and len(value) > _SHOWN_CHARS:
        return f"{value[:_SHOWN_CHARS]}... ({len(value)} characters)"
    return value


def _defaults(task: Task) -> str:
    return (
        f"  {task.name}\n    --train {' '.join(task.train)}\n"
        f"    --validation {' '.join(task.validation)}"
    )


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date, YYYY-MM-DD") from None
