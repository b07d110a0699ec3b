"""Which problems of a stream are kept: each once, none of the other split, as many as asked for."""

import random
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, TypeVar

from verl_msgrpo.tasks.rows import Problem

T = TypeVar("T")


class Found(NamedTuple):
    """A problem, where its row stands (for messages), what it is called, the file's name."""

    where: str
    data_source: str
    problem: Problem
    origin: str


@dataclass
class Counts:
    """What became of the rows that were read; as a text, a line for the console."""

    read: int = 0
    other_task: int = 0
    outside_dates: int = 0
    bad: int = 0
    first_bad: str = ""
    duplicates: int = 0
    other_answers: int = 0  # of the duplicates
    held_out: int = 0
    written: int = 0

    def __str__(self) -> str:
        parts = [f"{self.read} rows read", f"{self.written} written"]
        if self.other_task:
            parts.append(f"{self.other_task} of other tasks")
        if self.outside_dates:
            parts.append(f"{self.outside_dates} outside of the contest dates")
        if self.bad:
            parts.append(f"{self.bad} bad rows left out (the first: {self.first_bad})")
        repeated = f"{self.duplicates} repeated"
        if self.other_answers:
            repeated += f" ({self.other_answers} with another answer than the one kept)"
        return ", ".join([*parts, repeated, f"{self.held_out} also in validation"])


def distinct(problems: Iterable[Found], held_out: Set[bytes], counts: Counts) -> Iterator[Found]:
    """Leaves out repeated problems, of which the first stays, and those held out, and counts both.

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
