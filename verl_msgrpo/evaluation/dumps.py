"""Samples and their scores, from a validation dump of verl or any JSON lines file.

A dump of verl 0.9 (`trainer.validation_data_dir`; `trainer.rollout_data_dir` has the same form) has
`input`, `output`, `gts`, `score`, `step`, the reward function's own keys, and the row key `uid`,
which is {uid}_{session}_{index}: the uid names the prompt, a session is one sample, and of a
session's rows the last one counts. Dumps of the old trainer have no `uid`; their rows are grouped
by `input` and `gts`.

Any other file holds a sample a row:

    {"prompt": ..., "acc": 1, "pred": "42", "data_source": "aime", "format_ok": 1, ...}

`uid` or `prompt` (anything; `uid` goes first) names the group, `acc` or `score` is the result, the
rest is optional: `pred` is the answer that majority voting compares, `output` or `response` the
text, and the mean of every other number is reported. All rows of a file have the same keys.
"""

import dataclasses
import math
from array import array
from pathlib import Path

import numpy as np
import numpy.typing as npt

from verl_msgrpo.common.json_lines import objects_of
from verl_msgrpo.common.numbers import finite
from verl_msgrpo.common.row_keys import row_key
from verl_msgrpo.common.text import digest
from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.prompt_rows import PromptRows

VERL_KEYS = frozenset({"input", "output", "gts", "score", "step"})
TEXT_KEYS = ("output", "response")
NO_NUMBERS = frozenset({"uid", "prompt", "data_source", "pred", "step", "input", "gts", *TEXT_KEYS})
OUTPUT_CHARS = "output_chars"
NO_ANSWER, NO_PRED = -1, -2
UNMATCHED = "(not in --data)"


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """N samples of P prompts.

    Attributes:
        path: the file.
        step: of the training, if the file has one.
        prompts: (N,) int64, 0 .. P - 1.
        numbers: (N,) float64 under each key with a number in it; NaN where a row has none.
        answers: (N,) int64, equal for equal answers; NO_ANSWER for "", NO_PRED without `pred`.
        sources: P values of data_source; "" where there is none.
        keys: P values that name a prompt across files; they need not be distinct.
        rows: lines that were read.
        unseen: rows of --data that no prompt was found in; 0 without --data.
    """

    path: Path
    step: int | None
    prompts: npt.NDArray[np.int64]
    numbers: dict[str, npt.NDArray[np.float64]]
    answers: npt.NDArray[np.int64]
    sources: list[str]
    keys: list[bytes]
    rows: int
    unseen: int

    @property
    def unmatched(self) -> int:
        """Prompts that are in no row of --data."""
        return self.sources.count(UNMATCHED)


def read_samples(path: Path, data: PromptRows | None = None) -> Samples:
    """Reads one file, keeping only numbers.

    Args:
        path: JSON lines in one of the forms above.
        data: the data file, for the data_source of each prompt.

    Raises:
        UserError: the file is unreadable, empty, not of that form, or mixes steps or kinds of rows;
            or no prompt is in `data`.
    """
    reader = None
    for number, row in objects_of(path):
        if reader is None:
            reader = _Reader(path, row, data)
        try:
            reader.add(row)
        except _BadRowError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
        except RecursionError:
            raise UserError(f"{path}, line {number}: nested too deeply") from None
    if reader is None:
        raise UserError(f"{path}: no rows")
    return reader.samples()


class _BadRowError(Exception):
    """What is wrong with a row."""


class _Reader:
    """Gathers rows; memory grows by some 8 bytes per number, whatever the rows hold."""

    def __init__(self, path: Path, first: dict[str, object], data: PromptRows | None) -> None:
        self._path, self._data = path, data
        self._columns = first.keys()
        self._is_verl = first.keys() >= VERL_KEYS
        self._step = first.get("step")
        # verl writes the sum of the token rewards next to the score.
        skipped = NO_NUMBERS | {"reward"} if self._is_verl else NO_NUMBERS
        self._numbers = {key: array("d") for key in first if key not in skipped}
        self._text_key = next((key for key in TEXT_KEYS if key in first), None)
        self._chars = array("d")
        self._prompts, self._answers, self._index = array("q"), array("q"), array("q")
        self._slots: dict[tuple[int, int], int] = {}
        self._prompt_of: dict[bytes, int] = {}
        self._first_index: list[int] = []
        self._sources: list[str] = []
        self._keys: list[bytes] = []
        self._answer_of: dict[bytes, int] = {}
        self._rows = 0
        self._found: set[int] = set()

    def add(self, row: dict[str, object]) -> None:
        self._check(row)
        self._rows += 1
        uid, session, index = self._place(row)
        prompt = self._prompt_of.setdefault(uid, len(self._keys))
        if prompt == len(self._keys):
            self._keys.append(b"")
            self._sources.append("")
            self._first_index.append(index)
            self._name(prompt, row)
        elif index < self._first_index[prompt]:
            # A later row of a session may begin with another text than its prompt.
            self._first_index[prompt] = index
            self._name(prompt, row)
        text = row[self._text_key] if self._text_key else None
        chars = float(len(text)) if isinstance(text, str) else 0.0
        slot = self._slots.setdefault((prompt, session), len(self._prompts))
        if slot == len(self._prompts):
            self._prompts.append(prompt)
            self._index.append(index)
            self._chars.append(chars)
            self._answers.append(self._answer(row))
            for key, column in self._numbers.items():
                column.append(_number(row[key]))
            return
        if index == self._index[slot]:
            raise _BadRowError("its uid was there before; is it two dumps in one file?")
        self._chars[slot] += chars
        if index > self._index[slot]:
            self._index[slot] = index
            self._answers[slot] = self._answer(row)
            for key, column in self._numbers.items():
                column[slot] = _number(row[key])

    def samples(self) -> Samples:
        numbers = {key: np.array(column) for key, column in self._numbers.items()}
        if self._text_key is not None and OUTPUT_CHARS not in numbers:
            numbers[OUTPUT_CHARS] = np.array(self._chars)
        unseen = 0
        if self._data is not None:
            if not self._found:
                raise UserError(f"{self._path}: none of its prompts is in --data")
            unseen = len(self._data.rows) - len(self._found)
        return Samples(
            path=self._path,
            step=self._step if isinstance(self._step, int) else None,
            prompts=np.array(self._prompts, dtype=np.int64),
            numbers={key: column for key, column in numbers.items() if not np.isnan(column).all()},
            answers=np.array(self._answers, dtype=np.int64),
            sources=self._sources,
            keys=self._keys,
            rows=self._rows,
            unseen=unseen,
        )

    def _check(self, row: dict[str, object]) -> None:
        if row.keys() != self._columns:
            names = ", ".join(sorted(repr(key[:40]) for key in row.keys() ^ self._columns)[:5])
            raise _BadRowError(f"other keys than in the first row ({names}); evaluate kinds apart")
        if row.get("step") != self._step:
            raise _BadRowError(
                f"step {str(row['step'])[:20]} after step {str(self._step)[:20]}; "
                "evaluate one step at a time"
            )

    def _place(self, row: dict[str, object]) -> tuple[bytes, int, int]:
        """What names the prompt within the file, the session, and the row's index in it."""
        uid = row.get("uid")
        if self._is_verl and (key := row_key(uid)):
            return digest(key.uid), key.session, key.part
        if uid is not None:
            name = digest(uid)
        elif self._is_verl:
            name = digest(row["input"]) + digest(row["gts"])
        elif row.get("prompt") is not None:
            name = digest(row["prompt"])
        else:
            raise _BadRowError(
                "no uid and no prompt, so that nothing says which rows belong together"
            )
        # Every row is a sample of its own.
        return name + digest(row.get("data_source")), self._rows, 0

    def _name(self, prompt: int, row: dict[str, object]) -> None:
        source = row.get("data_source")
        self._sources[prompt] = "" if source is None else str(source)
        if self._is_verl:
            text, gts = row["input"], row["gts"]
            self._keys[prompt] = digest(text) + digest(gts)
        else:
            text, gts = row.get("prompt"), row.get("ground_truth")
            self._keys[prompt] = digest(row["uid"] if row.get("uid") is not None else text)
            self._keys[prompt] += digest(source)
        if self._data is not None:
            found = self._data.find(text, gts)
            self._sources[prompt] = UNMATCHED if found is None else found.source
            if found is not None:
                self._found.add(found.number)
                # The same prompt under another chat template.
                self._keys[prompt] = digest(found.number)

    def _answer(self, row: dict[str, object]) -> int:
        pred = row.get("pred")
        if pred is None:
            return NO_PRED
        text = " ".join((pred if isinstance(pred, str) else str(pred)).casefold().split())
        return self._answer_of.setdefault(digest(text), len(self._answer_of)) if text else NO_ANSWER


def _number(value: object) -> float:
    """NaN for anything but a finite number."""
    number = finite(value)
    return math.nan if number is None else number
