"""From a task's files to the problems that are written: the steps that every row goes through.

`candidates` reads rows as problems. `distinct` keeps each problem once, and none of the other
split's. `usable` refuses what the reward could never accept. `limited` takes as many as were asked
for. Each step is a stream, and one `Counts` says what was left out.
"""

import random
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from tqdm import tqdm

from verl_msgrpo.errors import UserError
from verl_msgrpo.rewards.ground_truth import GroundTruthError
from verl_msgrpo.tasks import sources
from verl_msgrpo.tasks.fields import FieldError, NotOfTask, note
from verl_msgrpo.tasks.registry import Reader, Task, reader_for
from verl_msgrpo.tasks.row_checks import unusable
from verl_msgrpo.tasks.rows import TaskProblem

T = TypeVar("T")


class Candidate(NamedTuple):
    """A problem that may be written.

    where: its file and row, for messages. data_source: what decides its reward.
    origin: the file's name.
    """

    where: str
    data_source: str
    problem: TaskProblem
    origin: str


@dataclass
class Counts:
    """What became of the rows that were read; its text is one line for the console."""

    skip_bad_rows: bool = False
    read: int = 0
    other_task: int = 0
    outside_dates: int = 0
    bad: int = 0
    first_bad: str = ""
    duplicates: int = 0
    other_answers: int = 0  # of the duplicates
    held_out: int = 0
    written: int = 0

    def refuse(self, reason: str) -> None:
        """Counts a row that cannot be used.

        Raises:
            UserError: bad rows are not to be skipped.
        """
        if not self.skip_bad_rows:
            raise UserError(f"{reason}; --skip-bad-rows leaves such rows out")
        self.bad += 1
        self.first_bad = self.first_bad or reason

    def __str__(self) -> str:
        parts = [f"{self.read} rows read", f"{self.written} written"]
        if self.other_task:
            parts.append(f"{self.other_task} for other tasks")
        if self.outside_dates:
            parts.append(f"{self.outside_dates} outside the contest dates")
        if self.bad:
            parts.append(f"{self.bad} bad, left out (the first: {self.first_bad})")
        repeated = f"{self.duplicates} repeated"
        if self.other_answers:
            repeated += f" ({self.other_answers} with an answer other than the one kept)"
        return ", ".join([*parts, repeated, f"{self.held_out} also in validation"])


def candidates(
    task: Task, names: Sequence[str], split: str, dates: tuple[str, str], counts: Counts
) -> Iterator[Candidate]:
    """The problems of all files of these sources, in order.

    Args:
        names: the sources, see `sources.files_of`.
        split: train or validation.
        dates: first and last day of the contests, in ISO form; "" leaves an end open.

    Raises:
        UserError: a source has no file, a file cannot be read or is not of the task.
    """
    default_split = task.validation_split if split == "validation" else "train"
    files = [file for name in names for file in sources.files_of(name, default_split)]
    with tqdm(desc=split, unit=" rows", file=sys.stderr, disable=None) as bar:
        for file in files:
            reader, origin = _reader(task, file), Path(file).name
            for row in sources.rows_of(file, (*reader.needs, *reader.uses)):
                bar.update()
                counts.read += 1
                try:
                    if reader.date_column and not _within(
                        note(row.fields, reader.date_column), *dates
                    ):
                        counts.outside_dates += 1
                        continue
                    problem = reader.read(row.fields)
                except NotOfTask:
                    counts.other_task += 1
                except (FieldError, GroundTruthError) as error:
                    counts.refuse(f"{row.where}: {error}")
                else:
                    yield Candidate(row.where, reader.data_source, problem, origin)


def distinct(
    problems: Iterable[Candidate], held_out: Set[bytes], counts: Counts
) -> Iterator[Candidate]:
    """Leaves out repeated problems, of which the first stays, and those held out.

    Memory: about 150 bytes for each distinct problem.
    """
    answers: dict[bytes, int] = {}
    for found in problems:
        key, answer = found.problem.key(), hash(found.problem.ground_truth)
        if key in answers:
            counts.duplicates += 1
            counts.other_answers += answers[key] != answer
            continue
        answers[key] = answer
        if key in held_out:
            counts.held_out += 1
        else:
            yield found


def usable(problems: Iterable[Candidate], counts: Counts) -> Iterator[Candidate]:
    """Refuses problems whose ground truth their own reward does not accept.

    Where the reward's packages are not installed, a line says so, and nothing is refused.
    """
    checks = True
    for found in problems:
        reason = ""
        if checks:
            try:
                extra_info = {"num_options": found.problem.num_options}
                reason = unusable(found.data_source, found.problem.ground_truth, extra_info)
            except ImportError as error:
                checks = False
                print(f"prepare: ground truths are not checked: {error}", file=sys.stderr)
        if reason:
            counts.refuse(f"{found.where}: the answer {reason}")
        else:
            yield found


def limited(items: Iterable[T], limit: int | None, seed: int | None) -> Iterator[T]:
    """The first `limit` items, or with a seed a random sample of that size in the same order.

    The sample is a reservoir: all items are read, `limit` of them are held in memory.
    """
    if limit is None:
        yield from items
    elif seed is None:
        for taken, item in enumerate(items, 1):
            yield item
            if taken == limit:
                return
    else:
        rng = random.Random(seed)
        sample: list[tuple[int, T]] = []
        for position, item in enumerate(items):
            if position < limit:
                sample.append((position, item))
            elif (slot := rng.randrange(position + 1)) < limit:
                sample[slot] = (position, item)
        yield from (item for _, item in sorted(sample, key=itemgetter(0)))


def _reader(task: Task, file: str) -> Reader:
    columns = sources.columns_of(file)
    if not columns:
        raise UserError(f"{file}: holds no rows")
    reader = reader_for(task, columns)
    if reader is None:
        forms = " or ".join(f"({', '.join(reader.needs)})" for reader in task.readers)
        raise UserError(f"{file}: {task.name} reads rows with {forms}; it has {', '.join(columns)}")
    return reader


def _within(day: str, first: str, last: str) -> bool:
    """Whether an ISO date is in a window, of which "" leaves an end open; raises FieldError."""
    if not (first or last):
        return True
    try:
        day = date.fromisoformat(day[:10]).isoformat()
    except ValueError:
        raise FieldError(f"contest_date is {day!r}; it must be a date") from None
    return first <= day <= (last or day)
