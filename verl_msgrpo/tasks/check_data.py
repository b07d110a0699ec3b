"""`verl-msgrpo check-data`: whether verl can train on these parquet files, before Ray starts."""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from verl_msgrpo.common import parquet
from verl_msgrpo.common.text import digest, first_line
from verl_msgrpo.errors import UserError
from verl_msgrpo.tasks.row_checks import (
    TOOLLESS_AGENT,
    column_problems,
    row_problems,
    type_differences,
    unusable,
)

_COLUMNS = ("data_source", "agent_name", "reward_model", "extra_info")


@dataclass
class FileFault:
    """A fault: where it was seen first, in how many rows. row: from 1; 0 is the file's columns."""

    file: str
    row: int
    field: str
    message: str
    warning: bool = False
    rows: int = 1

    def __str__(self) -> str:
        place = f"{self.file}, row {self.row}" if self.row else self.file
        more = f" (and {_counted(self.rows - 1, 'more row')})" if self.rows > 1 else ""
        kind = "warning: " if self.warning else ""
        return f"{place}: {kind}{self.field}: {self.message}{more}"


@dataclass
class CheckedFiles:
    """All faults, one for each field and kind of fault of a file; rows by file and by value."""

    faults: dict[tuple[str, str, str], FileFault] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    data_sources: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)

    @property
    def errors(self) -> list[FileFault]:
        """The faults that are not warnings."""
        return [fault for fault in self.faults.values() if not fault.warning]

    def add(self, fault: FileFault, kind: str = "") -> None:
        """Adds a fault, or counts it with the earlier one of the same file, field and kind."""
        place = re.sub(r"\d+", "", fault.field)  # all messages of a prompt are one place
        key = (fault.file, place, kind or fault.message)
        if key in self.faults:
            self.faults[key].rows += 1
        else:
            self.faults[key] = fault


def check_files(
    paths: Sequence[Path],
    *,
    needs_agent: bool = False,
    agent_loop: str = TOOLLESS_AGENT,
    prompt_key: str = "prompt",
) -> CheckedFiles:
    """Checks parquet files that are to be trained on together. Memory: 100 bytes per row.

    Args:
        paths: the files.
        needs_agent: tools are on, so some row has to reach an agent loop that calls them.
        agent_loop: what runs rows without `agent_name`: `rollout.agent.default_agent_loop`.
        prompt_key: the column of the prompts: `data.prompt_key`.

    Raises:
        UserError: a file cannot be read or holds no rows.
    """
    checked = CheckedFiles()
    schemas = {str(path): _schema(path) for path in paths}
    _compare(schemas, checked)
    seen: set[bytes] = set()
    for path in paths:
        _check_file(path, schemas[str(path)], prompt_key, seen, checked)
    _check_agents(schemas, checked, needs_agent, agent_loop)
    return checked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.description = (
        "Checks files that are trained on together. Exit code: 0 if they can be used, 1 if there "
        "are errors, 2 if a file cannot be read."
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="parquet files")
    parser.add_argument(
        "--needs-agent",
        action="store_true",
        help="tools are in use: at least one row must reach an agent loop",
    )
    parser.add_argument(
        "--agent-loop",
        default=TOOLLESS_AGENT,
        metavar="NAME",
        help="the run's rollout.agent.default_agent_loop, which runs rows without agent_name "
        f"(default: {TOOLLESS_AGENT})",
    )
    parser.add_argument(
        "--prompt-key",
        default="prompt",
        metavar="COLUMN",
        help="the run's data.prompt_key (default: prompt)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the faults; raises UserError for files that cannot be read."""
    checked = check_files(
        args.files,
        needs_agent=args.needs_agent,
        agent_loop=args.agent_loop,
        prompt_key=args.prompt_key,
    )
    for fault in checked.faults.values():
        print(fault)
    for file, rows in checked.rows.items():
        print(f"{file}: {_counted(rows, 'row')}")
    for name, values in (("data_source", checked.data_sources), ("agent_name", checked.agents)):
        if values:
            print(f"{name}: " + ", ".join(f"{value} {count}" for value, count in values.items()))
    warnings = len(checked.faults) - len(checked.errors)
    print(f"{_counted(len(checked.errors), 'error')}, {_counted(warnings, 'warning')}")
    return 1 if checked.errors else 0


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _schema(path: Path) -> pa.Schema:
    try:
        with pq.ParquetFile(path) as file:
            if not file.metadata.num_rows:
                raise UserError(f"{path}: holds no rows")
            return file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: not a readable parquet file: {first_line(error)}") from None


def _compare(schemas: Mapping[str, pa.Schema], checked: CheckedFiles) -> None:
    """Reports columns whose types differ between files, and an agent_name that only some have."""
    first_file, *others = schemas
    first = schemas[first_file]
    for file in others:
        other = schemas[file]
        for name in first.names:
            if name in other.names:
                here, there = other.field(name).type, first.field(name).type
                for place, message in type_differences(there, here, name):
                    checked.add(FileFault(file, 0, place, f"{message} ({first_file})"))
    with_agent = [file for file, schema in schemas.items() if "agent_name" in schema.names]
    for file in schemas:
        if with_agent and file not in with_agent:
            message = (
                f"the column is missing here, so verl fills it with nulls; {with_agent[0]} has it"
            )
            checked.add(FileFault(file, 0, "agent_name", message))


def _check_file(
    path: Path, schema: pa.Schema, prompt_key: str, seen: set[bytes], checked: CheckedFiles
) -> None:
    file = str(path)
    broken: set[str] = set()
    for place, message in column_problems(schema, prompt_key):
        checked.add(FileFault(file, 0, place, message))
        broken.add(place.partition(".")[0])
    columns = [c for c in (prompt_key, *_COLUMNS) if c in schema.names and c not in broken]
    number = 0
    for row in _rows(path, columns):
        number += 1
        faulty = set()
        for place, message in row_problems(row, prompt_key):
            checked.add(FileFault(file, number, place, message))
            faulty.add(place.partition(".")[0])
        if prompt_key in row and _is_repeated(row[prompt_key], seen):
            message = "the prompt repeats an earlier one"
            checked.add(FileFault(file, number, prompt_key, message, warning=True))
        if not faulty & {"data_source", "reward_model", "extra_info"}:
            _check_answer(file, number, row, checked)
        for name, values in (("data_source", checked.data_sources), ("agent_name", checked.agents)):
            if name in row and name not in faulty:
                values[str(row[name])] += 1
    checked.rows[file] = number


def _check_answer(file: str, number: int, row: Mapping[str, object], checked: CheckedFiles) -> None:
    reward_model = row.get("reward_model")
    if "data_source" not in row or not isinstance(reward_model, Mapping):
        return
    place = "reward_model.ground_truth"
    try:
        reason = unusable(
            str(row["data_source"]), reward_model.get("ground_truth"), row.get("extra_info")
        )
    except ImportError as error:
        checked.add(FileFault(file, number, place, f"is not checked: {error}", warning=True))
        return
    if reason:
        checked.add(FileFault(file, number, place, reason), kind="unusable")


def _check_agents(
    schemas: Mapping[str, pa.Schema], checked: CheckedFiles, needs_agent: bool, agent_loop: str
) -> None:
    """Reports that no row would call a tool, where some should."""
    if not needs_agent:
        return
    named = any("agent_name" in schema.names for schema in schemas.values())
    agents = checked.agents if named else {agent_loop: 1}
    if all(agent == TOOLLESS_AGENT for agent in agents):
        file = next(iter(schemas))
        state = "every row names" if named else "the column is missing, so every row gets"
        message = f"{state} {TOOLLESS_AGENT}, which never calls a tool"
        checked.add(FileFault(file, 0, "agent_name", message))


def _is_repeated(prompt: object, seen: set[bytes]) -> bool:
    key = digest(prompt)
    repeated = key in seen
    seen.add(key)
    return repeated


def _rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, object]]:
    try:
        total = pq.read_metadata(path).num_rows
        with tqdm(total=total, unit=" rows", file=sys.stderr, disable=None) as bar:
            yield from parquet.stream(path, columns, bar.update)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read: {first_line(error)}") from None
