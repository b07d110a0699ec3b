"""The best and the worst rollouts of a dump of verl's (a file STEP.jsonl), and who wrote what.

A dump holds text only, so the tags of an observation tell what the model wrote and what it was
shown: `<tool_response>`, `<information>`. What a model itself writes between such tags is taken for
an observation.
"""

import dataclasses
import heapq
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_msgrpo.common.numbers import finite
from verl_msgrpo.common.row_keys import row_key
from verl_msgrpo.common.text import digest
from verl_msgrpo.errors import UserError
from verl_msgrpo.report.runs import Run, whole_lines
from verl_msgrpo.rewards.response import OBSERVATION_TAGS

FOLDERS = ("rollouts", "validation")  # of a run; the first one with a dump in it
_LAYOUT = frozenset({"input", "output", "gts", "score", "step", "uid", "reward"})
MAX_NUMBERS = 12

MODEL, OBSERVATION = "model", "observation"

_TAGS = "|".join(OBSERVATION_TAGS)
# An observation that is never closed takes the rest, as it does for the rewards.
_OBSERVATION = re.compile(rf"<({_TAGS})>.*?(?:</\1>|\Z)", re.DOTALL)
# Headers of turns, with their special tokens or what is left of them; the template's, not the
# model's. Before an observation, and after it.
_OPENING = re.compile(r"(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?\b(?:tool|user)\n\Z")
_CLOSING = re.compile(r"\s*(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?assistant\n")
_MAX_HEADER_CHARS = 60


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One rollout. `numbers`: what the reward function gave beside the score."""

    prompt: str
    response: str
    truth: str
    score: float
    numbers: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Extremes:
    """The best and the worst, each from prompts of their own; the best, the worst first.

    rollouts, mean: how many have a score, and its mean.
    unread: rows without a text and a score.
    """

    file: Path
    best: list[Trajectory]
    worst: list[Trajectory]
    rollouts: int
    mean: float
    unread: int


def last_dump(run: Run) -> Path | None:
    """The latest dump in the run's folder."""
    for name in FOLDERS if run.folder else ():
        assert run.folder is not None
        files = [file for file in (run.folder / name).glob("*.jsonl") if file.stem.isdecimal()]
        if files:
            return max(files, key=lambda file: (len(file.stem.lstrip("0")), file.stem.lstrip("0")))
    return None


def extremes(file: Path, count: int) -> Extremes:
    """Finds `count` of each kind, with at most one of a prompt in each kind.

    verl cuts a long session into several rows, {uid}_{session}_{index}: its last row has the score,
    and the rows make up its response. Reads the file twice and keeps only scores of the rest.

    Raises:
        UserError: the file cannot be read or holds no scored rollout.
    """
    last: dict[bytes, _Scored] = {}
    unread = 0
    for scored in _scored_rows(file):
        if scored is None:
            unread += 1
        elif scored.session not in last or scored.index >= last[scored.session].index:
            last[scored.session] = scored
    if not last:
        raise UserError(f"{file}: no row with `output` and `score`, as verl's dumps have")
    best = _of_each_prompt(last, count, sign=1)
    worst = _of_each_prompt(last, count, sign=-1)
    texts = _read(file, {session: last[session].score for session in (*best, *worst)})
    return Extremes(
        file=file,
        best=[texts[session] for session in best],
        worst=[texts[session] for session in worst],
        rollouts=len(last),
        mean=sum(scored.score for scored in last.values()) / len(last),
        unread=unread,
    )


@dataclasses.dataclass(frozen=True)
class _Scored:
    prompt: bytes
    session: bytes
    index: int
    score: float


def _scored_rows(file: Path) -> Iterator[_Scored | None]:
    for number, row in enumerate(whole_lines(file)):
        score = finite(row.get("score")) if row else None
        if row is None or score is None or not isinstance(row.get("output"), str):
            yield None
        else:
            yield _Scored(*_place(row, number), score)


def _place(row: dict[str, object], number: int) -> tuple[bytes, bytes, int]:
    """What names the prompt and the session, and the row's index in it."""
    if key := row_key(row.get("uid")):
        return digest(key.uid), digest([key.uid, key.session]), key.part
    return digest(_text(row.get("input"))), digest([number]), 0


def _of_each_prompt(last: dict[bytes, _Scored], count: int, sign: int) -> list[bytes]:
    """The sessions with the highest `sign * score` of the prompts where that is highest."""
    of_prompt: dict[bytes, _Scored] = {}
    for scored in last.values():
        kept = of_prompt.get(scored.prompt)
        if kept is None or sign * scored.score > sign * kept.score:
            of_prompt[scored.prompt] = scored
    chosen = heapq.nlargest(count, of_prompt.values(), key=lambda scored: sign * scored.score)
    return [scored.session for scored in chosen]


def _read(file: Path, scores: dict[bytes, float]) -> dict[bytes, Trajectory]:
    rows: dict[bytes, dict[int, dict[str, object]]] = {}
    for number, row in enumerate(whole_lines(file)):
        if row is not None and isinstance(row.get("output"), str):
            _, session, index = _place(row, number)
            if session in scores:
                rows.setdefault(session, {})[index] = row
    return {session: _trajectory(rows[session], score) for session, score in scores.items()}


def _trajectory(rows: dict[int, dict[str, object]], score: float) -> Trajectory:
    ordered = [rows[index] for index in sorted(rows)]
    numbers = {
        key: number
        for key, value in ordered[-1].items()
        if key not in _LAYOUT and (number := finite(value)) is not None
    }
    return Trajectory(
        prompt=_text(ordered[0].get("input")),
        response="".join(_text(row["output"]) for row in ordered),
        truth=_text(ordered[-1].get("gts")),
        score=score,
        numbers=dict(list(numbers.items())[:MAX_NUMBERS]),
    )


def _text(value: object) -> str:
    if isinstance(value, str) or value is None:
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply)"


@dataclasses.dataclass(frozen=True)
class Segment:
    """Text of one author: MODEL or OBSERVATION."""

    author: str
    text: str


def segments(response: str) -> list[Segment]:
    """The parts of a response in order; joined, they are the response."""
    cuts = [0]
    for found in _OBSERVATION.finditer(response):
        start, end = found.span()
        tail = max(cuts[-1], start - _MAX_HEADER_CHARS)
        if header := _OPENING.search(response[tail:start]):
            start = tail + header.start()
        if header := _CLOSING.match(response[end : end + _MAX_HEADER_CHARS]):
            end += header.end()
        cuts += [start, end]
    cuts.append(len(response))
    authors = [OBSERVATION if number % 2 else MODEL for number in range(len(cuts) - 1)]
    parts = [
        Segment(author, response[start:end])
        for author, start, end in zip(authors, cuts, cuts[1:], strict=False)
    ]
    return _merged(parts)


def _merged(parts: Sequence[Segment]) -> list[Segment]:
    """Neighbours of the same author as one, as are answers to parallel calls; blanks join them."""
    merged: list[Segment] = []
    for part in parts:
        if merged and (merged[-1].author == part.author or not part.text.strip()):
            merged[-1] = Segment(merged[-1].author, merged[-1].text + part.text)
        elif merged and not merged[-1].text.strip():
            merged[-1] = Segment(part.author, merged[-1].text + part.text)
        else:
            merged.append(part)
    return merged
