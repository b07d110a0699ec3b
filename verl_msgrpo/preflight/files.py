"""The files that a launch reads, the folder that it writes to, and the rows that it trains on.

`check_files` says what does not exist; `read_data` looks into the data files that do, for
`check_data` and for the trial of the reward function.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from omegaconf import DictConfig

from verl_msgrpo.common import parquet
from verl_msgrpo.common.json_lines import MAX_LINE_BYTES, lines_of, parsed
from verl_msgrpo.preflight.launch import Launch
from verl_msgrpo.preflight.names import known_agents
from verl_msgrpo.preflight.settings import (
    MODEL,
    ROLLOUT,
    WARNING,
    Problem,
    existing_parent,
    is_on,
    local_path,
    one_line,
    text,
    texts,
    unknown,
    whole,
)
from verl_msgrpo.tasks.row_checks import TOOLLESS_AGENT, column_problems, row_problems

FILES, DATA = "files", "data"
DATA_KEYS = ("data.train_files", "data.val_files")
# Files that a launch may name, all of which may be null instead.
OPTIONAL_FILES = (
    "data.custom_cls.path",
    f"{ROLLOUT}.multi_turn.tool_config_path",
    f"{ROLLOUT}.multi_turn.function_tool_path",
    f"{ROLLOUT}.agent.agent_loop_config_path",
    "trainer.v1.sampler.custom_sampler.path",
    f"{MODEL}.lora_adapter_path",
)
SAMPLE_ROWS = 64
SAMPLE_BYTES = 1 << 26  # of JSON lines; a row of LiveCodeBench may take hundreds of MB


def check_files(config: DictConfig) -> Iterator[Problem]:
    """Paths that do not exist. Names of the hub and addresses of other storage are passed over."""
    for key in DATA_KEYS:
        paths = texts(config, key)
        if not paths:
            yield Problem(FILES, f"{key} names no file", f"{key}=<a .parquet file>")
        for path in paths:
            yield from _data_file(key, path)
    for key in OPTIONAL_FILES:
        path = text(config, key) or ""
        local = local_path(path) if path else None
        if local is not None and not os.path.exists(local):
            fix = f"{key}=null, or the path of a file that exists"
            yield Problem(FILES, f"{key}: {path} does not exist", fix)
    yield from _model(config)
    yield from _resume(config)
    yield from _output(config)


def _data_file(key: str, path: str) -> Iterator[Problem]:
    local = local_path(path)
    if local is None:
        return
    if not os.path.isfile(local):
        fix = f"verl-msgrpo prepare <task> --out <folder>; then {key}=<folder>/<file>.parquet"
        yield Problem(FILES, f"{key}: {path} does not exist", fix)
    elif not path.endswith((".parquet", ".json", ".jsonl")):
        message = f"{key}: verl reads .parquet, .json and .jsonl files, not {path}"
        yield Problem(FILES, message, f"{key}={path}.parquet")


def _model(config: DictConfig) -> Iterator[Problem]:
    """A folder that was meant, or a name of the hub: owner/name."""
    key = f"{MODEL}.path"
    path = text(config, key)
    if path is None:
        yield Problem(FILES, f"{key} is not set", f"{key}=Qwen/Qwen2.5-7B-Instruct")
        return
    local = local_path(path)
    if local is None or os.path.isdir(local):
        if local is not None and not os.path.isfile(os.path.join(local, "config.json")):
            message = f"{key}: {path} has no config.json"
            yield Problem(FILES, message, f"{key}=<a folder in Hugging Face's format>")
    elif path.startswith(("/", ".", "~")) or path.count("/") > 1:
        message = f"{key}: {path} does not exist"
        yield Problem(FILES, message, f"{key}=<a folder that exists, or owner/name of the hub>")


def _resume(config: DictConfig) -> Iterator[Problem]:
    mode = text(config, "trainer.resume_mode")
    if mode not in ("auto", "disable", "resume_path"):
        message = f"trainer.resume_mode is {mode!r}: auto, disable or resume_path"
        yield Problem(FILES, message, "trainer.resume_mode=auto")
    if mode == "resume_path":
        path = text(config, "trainer.resume_from_path")
        local = local_path(path) if path else None
        if path is None or "global_step_" not in path or (local and not os.path.isdir(local)):
            message = (
                f"trainer.resume_from_path is {path!r}; it must be a folder .../global_step_<N> "
                "that exists"
            )
            yield Problem(FILES, message, "trainer.resume_mode=auto")
    folder = local_path(text(config, "trainer.default_local_dir") or "")
    if mode == "auto" and folder is not None:
        step = latest_step(folder)
        total = whole(config, "trainer.total_training_steps", default=0)
        if step is not None:
            end = f", and total_training_steps={total} is reached" if 0 < total <= step else ""
            message = f"{folder} holds step {step}: the run goes on from there{end}"
            yield Problem(FILES, message, "trainer.resume_mode=disable", WARNING)


def latest_step(folder: str) -> int | None:
    """The step of the latest checkpoint in a folder, None without one."""
    try:
        path = os.path.join(folder, "latest_checkpointed_iteration.txt")
        with open(path, encoding="utf-8") as file:
            return int(file.read(20))
    except (OSError, ValueError):
        return None


def _output(config: DictConfig) -> Iterator[Problem]:
    key = "trainer.default_local_dir"
    folder = local_path(text(config, key) or "")
    if folder is None:
        return
    parent = existing_parent(folder)
    if not os.path.isdir(parent) or not os.access(parent, os.W_OK):
        message = (
            f"{key}: {folder} cannot be written: {parent} is not a folder that you may write to"
        )
        yield Problem(FILES, message, f"{key}=<a folder that you may write to>")


# --- Rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataFile:
    """What a look at a file's columns and first rows tells."""

    key: str
    path: str
    rows: int
    schema: pa.Schema
    sample: list[dict[str, object]] = field(repr=False)
    agents: list[str] | None = None
    """Distinct names in `agent_name`; None without the column."""


def read_data(config: DictConfig) -> tuple[list[DataFile], list[Problem]]:
    """The data files that exist here; `check_files` reports those that do not."""
    found, problems = [], []
    for key in DATA_KEYS:
        for path in texts(config, key):
            local = local_path(path)
            if local is None or not os.path.isfile(local):
                continue
            look = _parquet if local.endswith(".parquet") else _json
            try:
                found.append(look(key, local))
            except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
                message = f"{key}: {path} cannot be read: {one_line(error, 160)}"
                fix = "verl-msgrpo prepare <task> --out <folder>, which writes it again"
                problems.append(Problem(DATA, message, fix))
    return found, problems


def _parquet(key: str, path: str) -> DataFile:
    with pq.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        agents = None
        if "agent_name" in schema.names:
            column = file.read(["agent_name"])["agent_name"]
            agents = sorted(str(name) for name in pc.unique(column).to_pylist())
    sample = list(islice(parquet.stream(Path(path), schema.names), SAMPLE_ROWS))
    return DataFile(key, path, rows, schema, sample, agents)


def _json(key: str, path: str) -> DataFile:
    """JSON lines, or one array of objects. Columns and agents are those of the first rows."""
    with open(path, "rb") as file:
        if file.peek(1)[:1] == b"[":
            content, problem = parsed(file.read(MAX_LINE_BYTES))
            if problem is not None or not isinstance(content, list):
                raise ValueError(problem or "neither JSON lines nor an array")
            sample, rows = [_object(row, "row", i) for i, row in enumerate(content)], len(content)
        else:
            sample = _first_lines(file)
            rows = len(sample) + _count_lines(file)
    sample = sample[:SAMPLE_ROWS]
    schema = pa.Table.from_pylist(sample).schema
    agents = None
    if "agent_name" in schema.names:
        agents = sorted({str(row.get("agent_name")) for row in sample})
    return DataFile(key, path, rows, schema, sample, agents)


def _first_lines(file: BinaryIO) -> list[dict[str, object]]:
    rows = []
    for number, row, problem in lines_of(file):
        if problem is not None:
            raise ValueError(f"line {number}: {problem}")
        rows.append(_object(row, "line", number))
        if len(rows) == SAMPLE_ROWS or file.tell() > SAMPLE_BYTES:
            break
    return rows


def _object(row: object, place: str, number: int) -> dict[str, object]:
    if not isinstance(row, dict):
        raise ValueError(f"{place} {number}: not a JSON object")
    return row


def _count_lines(file: BinaryIO) -> int:
    """The lines that are left and not blank, which are not parsed."""
    count, is_new = 0, True
    while part := file.readline(MAX_LINE_BYTES):
        count += is_new and bool(part.strip())
        is_new = part.endswith(b"\n")
    return count


def check_data(launch: Launch, files: list[DataFile]) -> Iterator[Problem]:
    """Columns, the first rows, agent loops, and the number of rows of a step."""
    prompt_key = text(launch.config, "data.prompt_key") or "prompt"
    for file in files:
        problems = column_problems(file.schema, prompt_key)
        broken = {place.partition(".")[0] for place, _ in problems}
        for row in file.sample:
            kept = {name: value for name, value in row.items() if name not in broken}
            problems += row_problems(kept, prompt_key)
        for place, message in dict(problems).items():
            fix = f"verl-msgrpo check-data {file.path}; verl-msgrpo prepare writes such rows"
            yield Problem(DATA, f"{file.path}: {place}: {message}", fix)
        yield from _agents(launch, file)
    yield from _steps(launch, files)


def uses_tools(config: DictConfig) -> bool:
    """Whether tools are set up, so that some agent loop has to call them."""
    keys = ("tool_config_path", "function_tool_path")
    named = any(text(config, f"{ROLLOUT}.multi_turn.{key}") for key in keys)
    return named or is_on(config, f"{ROLLOUT}.multi_turn.enable")


def _agents(launch: Launch, file: DataFile) -> Iterator[Problem]:
    key = f"{ROLLOUT}.agent.default_agent_loop"
    default = text(launch.config, key) or TOOLLESS_AGENT
    named = file.agents if file.agents is not None else [default]
    known = known_agents(launch.config)
    for name in named:
        if known is not None and name not in known and file.agents is not None:
            yield unknown(DATA, f"{file.path}: agent_name", name, list(known))
    if not uses_tools(launch.config):
        return
    if set(named) == {TOOLLESS_AGENT}:
        why = "has no column agent_name" if file.agents is None else "names it in every row"
        message = f"{file.path} {why}: {TOOLLESS_AGENT} runs it, which never calls a tool"
        fix = f"{key}=search_tool_agent"
        if file.agents is not None:
            fix = "verl-msgrpo prepare hotpotqa --agent-loop search_tool_agent (a row's name wins)"
        yield Problem(DATA, message, fix)
    elif file.agents is not None and default not in named and default != TOOLLESS_AGENT:
        message = f"{file.path}: its rows name {', '.join(named)}, which wins over {key}={default}"
        fix = f"{key}={named[0]}, or verl-msgrpo prepare hotpotqa --agent-loop {default}"
        yield Problem(DATA, message, fix)


def _steps(launch: Launch, files: list[DataFile]) -> Iterator[Problem]:
    rows = train_rows(launch, files)
    if rows is None:
        return
    if rows < launch.prompts:
        message = f"{rows} training rows are fewer than data.train_batch_size={launch.prompts}"
        yield Problem(DATA, message, f"data.train_batch_size={max(1, rows)}")
        return
    wanted = whole(launch.config, "trainer.total_training_steps", default=0)
    epochs = whole(launch.config, "trainer.total_epochs")
    possible = epochs * (rows // launch.prompts)
    if wanted > possible:
        message = (
            f"trainer.total_epochs={epochs} ends the run after {possible} of {wanted} steps: "
            f"{rows} rows make {rows // launch.prompts} steps per epoch"
        )
        fix = f"trainer.total_epochs={-(-wanted // (rows // launch.prompts))}"
        yield Problem(DATA, message, fix, WARNING)


def train_rows(launch: Launch, files: Sequence[DataFile]) -> int | None:
    """Training rows, None where not every file can be counted here."""
    mine = [file.rows for file in files if file.key == "data.train_files"]
    if not mine or len(mine) != len(texts(launch.config, "data.train_files")):
        return None
    limit = whole(launch.config, "data.train_max_samples", default=-1)
    return min(sum(mine), limit) if limit > 0 else sum(mine)


def first_row(files: list[DataFile]) -> Mapping[str, object] | None:
    """A row to try the reward on."""
    return next((file.sample[0] for file in files if file.sample), None)
