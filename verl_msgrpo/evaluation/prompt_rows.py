"""Which row of a verl data file a prompt of a dump comes from.

A dump holds a prompt as the decoded chat template, and nothing that names the row. So the row's
last message is looked for in the prompt; what the template puts around it is learned from the first
prompts, and then cut off.
"""

import dataclasses
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from verl_msgrpo.common.text import digest
from verl_msgrpo.errors import UserError

MAX_AFFIXES = 16
FULL_SCANS = 100  # prompts that are looked for in rows with another ground truth, too


@dataclasses.dataclass(frozen=True)
class DataRow:
    """A prompt of the data file.

    number: its place, the same whenever the same files are read.
    earlier, message: the messages before the last one, and that one.
    answer: digest of the ground truth.
    """

    number: int
    source: str
    earlier: tuple[str, ...]
    message: str
    answer: bytes


class PromptRows:
    """The distinct prompts of verl data files (parquet), to be found in decoded prompts."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Reads the files.

        Raises:
            UserError: a file cannot be read, or lacks `prompt` or `data_source`.
        """
        sources: dict[tuple[tuple[str, ...], bytes], dict[str, None]] = defaultdict(dict)
        for path in paths:
            for messages, answer, source in _read(path):
                sources[messages, answer][source] = None
        self.rows = [
            # A dump cannot tell equal prompts with equal answers apart.
            DataRow(number, " or ".join(names), messages[:-1], messages[-1], answer)
            for number, ((messages, answer), names) in enumerate(sources.items())
        ]
        self._by_message: dict[str, list[DataRow]] = defaultdict(list)
        self._by_answer: dict[bytes, list[DataRow]] = defaultdict(list)
        for row in self.rows:
            self._by_message[row.message].append(row)
            self._by_answer[row.answer].append(row)
        self._affixes: list[tuple[str, str]] = []
        self._full_scans = 0

    def find(self, prompt: object, ground_truth: object) -> DataRow | None:
        """The row with the longest last message in `prompt`, if possible with that ground truth."""
        text, answer = " ".join(messages_of(prompt)), digest(ground_truth)
        row = _best(self._in_known_template(text), text, answer)
        if row is not None:
            return row
        row = _best(self._by_answer.get(answer, ()), text, answer)
        if row is None and self._full_scans < FULL_SCANS:
            self._full_scans += 1
            row = _best(self.rows, text, answer)
        if row is not None and len(self._affixes) < MAX_AFFIXES:
            before, _, after = text.rpartition(row.message)
            self._affixes.append((before, after))
        return row

    def _in_known_template(self, text: str) -> Iterator[DataRow]:
        for before, after in self._affixes:
            if text.startswith(before) and text.endswith(after):
                message = text[len(before) : len(text) - len(after)]
                yield from self._by_message.get(message, ())


def messages_of(prompt: object) -> tuple[str, ...]:
    """The texts of a chat or of a plain prompt, without what tokenizers and templates change."""
    messages = prompt if isinstance(prompt, list) else [prompt]
    texts = (_text(m.get("content") if isinstance(m, dict) else m) for m in messages)
    return tuple(" ".join(unicodedata.normalize("NFKC", text).split()) for text in texts)


def _text(content: object) -> str:
    if isinstance(content, list):  # parts, some of which may be images
        content = " ".join(
            str(part.get("text") or "") for part in content if isinstance(part, dict)
        )
    return content if isinstance(content, str) else ""


def _best(rows: Iterable[DataRow], text: str, answer: bytes) -> DataRow | None:
    def rank(row: DataRow) -> tuple[int, bool, int]:
        others = sum(map(len, row.earlier)) if all(e in text for e in row.earlier) else -1
        return len(row.message), row.answer == answer, others

    return max((r for r in rows if r.message and r.message in text), key=rank, default=None)


def _read(path: Path) -> Iterator[tuple[tuple[str, ...], bytes, str]]:
    """(messages, digest of the ground truth, data_source) of each row."""
    import pyarrow as pa  # here, as most evaluations need no data file
    import pyarrow.parquet as pq

    from verl_msgrpo.common.parquet import stream

    try:
        names = pq.read_schema(path).names
        missing = [name for name in ("prompt", "data_source") if name not in names]
        if missing:
            raise UserError(f"{path}: no column {missing[0]}; --data wants verl's data file")
        columns = [c for c in ("prompt", "data_source", "reward_model") if c in names]
        for row in stream(path, columns):
            model = row.get("reward_model")
            answer = model.get("ground_truth") if isinstance(model, dict) else None
            messages = messages_of(row["prompt"]) or ("",)
            yield messages, digest(answer), str(row["data_source"])
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{path}: not a parquet file that can be read ({reason})") from None
