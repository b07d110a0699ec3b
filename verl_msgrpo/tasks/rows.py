"""A problem of any task, and verl's row for it: one schema for all tasks and files.

verl concatenates the files that it trains on, which fails where the fields of a struct differ. So
every row has the same fields, `ground_truth` is a string in all of them (what is no single answer
is JSON), and no value is null: "" and 0 stand for what a task does not have.
"""

import hashlib
import unicodedata
from dataclasses import dataclass

import pyarrow as pa

from verl_msgrpo.tasks.prompts import fill

SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("agent_name", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    ("index", pa.int64()),  # in its file, from 0
                    ("split", pa.string()),  # train or validation
                    ("id", pa.string()),  # the data set's own
                    ("origin", pa.string()),  # the data set, or its part, that the row is from
                    ("num_options", pa.int64()),  # of multiple choice, else 0
                    ("kind", pa.string()),  # bridge, comparison, stdin, functional, ...
                    ("difficulty", pa.string()),
                    ("date", pa.string()),  # of the contest
                ]
            ),
        ),
    ]
)

Row = dict[str, object]


@dataclass(frozen=True)
class Problem:
    """One example of a data set, understood.

    text: the problem as the model reads it, without instructions.
    ground_truth: what the task's reward compares with.
    """

    text: str
    ground_truth: str
    id: str = ""
    origin: str = ""
    num_options: int = 0
    kind: str = ""
    difficulty: str = ""
    date: str = ""

    def key(self) -> bytes:
        """Equal for problems that differ in blanks, capitals or `$` only. 16 bytes."""
        text = unicodedata.normalize("NFC", self.text).casefold().replace("$", "")
        text = "".join(text.split())
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


def verl_row(
    problem: Problem,
    *,
    data_source: str,
    origin: str,
    ability: str,
    agent_name: str,
    template: str,
    split: str,
    index: int,
) -> Row:
    """A row of `SCHEMA`.

    Args:
        data_source: the task's name for its reward.
        origin: the file, for problems that do not say where they are from.
        template: see `prompts`.
        index: the row's place in its file, from 0.
    """
    return {
        "data_source": data_source,
        "agent_name": agent_name,
        "prompt": [{"role": "user", "content": fill(template, problem.text)}],
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
        "extra_info": {
            "index": index,
            "split": split,
            "id": problem.id,
            "origin": problem.origin or origin,
            "num_options": problem.num_options,
            "kind": problem.kind,
            "difficulty": problem.difficulty,
            "date": problem.date,
        },
    }
