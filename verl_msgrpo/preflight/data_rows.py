"""The rows: their columns, who runs them, and whether they make one step."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from omegaconf import DictConfig

from verl_msgrpo.preflight.names import known_agents, unknown
from verl_msgrpo.preflight.problems import WARNING, Problem, one_line
from verl_msgrpo.preflight.run import ROLLOUT, Run
from verl_msgrpo.preflight.settings import is_on, local_path, text, texts, whole
from verl_msgrpo.tasks.row_checks import TOOLLESS_AGENT, column_problems, row_problems

CHECK = "data"
SAMPLE_ROWS = 64
MAX_LINE_BYTES = 1 << 24


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
    """The data files that exist here; `files.py` reports those that do not."""
    found, problems = [], []
    for key in ("data.train_files", "data.val_files"):
        for path in texts(config, key):
            local = local_path(path)
            if local is None or not os.path.isfile(local):
                continue
            try:
                found.append(
                    _parquet(key, local) if local.endswith(".parquet") else _json(key, local)
                )
            except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
                message = f"{key}: {path} cannot be read: {one_line(error, 160)}"
                fix = "verl-msgrpo prepare <task> --out <folder>, which writes it anew"
                problems.append(Problem(CHECK, message, fix))
    return found, problems


def _parquet(key: str, path: str) -> DataFile:
    with pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(batch_size=SAMPLE_ROWS), None)
        sample = batch.to_pylist() if batch is not None else []
        schema, rows = file.schema_arrow, file.metadata.num_rows
        agents = None
        if "agent_name" in schema.names:
            column = file.read(["agent_name"])["agent_name"]
            agents = sorted(str(name) for name in pc.unique(column).to_pylist())
    return DataFile(key, path, rows, schema, sample, agents)


def _json(key: str, path: str) -> DataFile:
    """Of a .jsonl the first rows; its agents are those of these rows."""
    with open(path, "rb") as file:
        lines = [
            line for _ in range(SAMPLE_ROWS) if (line := file.readline(MAX_LINE_BYTES).strip())
        ]
        rows = len(lines) + sum(1 for line in file if line.strip())
    sample = [row for line in lines if isinstance(row := json.loads(line), dict)]
    schema = pa.Table.from_pylist(sample).schema
    agents = None
    if "agent_name" in schema.names:
        agents = sorted({str(row.get("agent_name")) for row in sample})
    return DataFile(key, path, rows, schema, sample, agents)


def check_data(run: Run, files: list[DataFile]) -> Iterator[Problem]:
    """Columns, the first rows, agent loops, and the number of rows of a step."""
    prompt_key = text(run.config, "data.prompt_key") or "prompt"
    for file in files:
        problems = column_problems(file.schema, prompt_key)
        broken = {place.partition(".")[0] for place, _ in problems}
        for row in file.sample:
            kept = {name: value for name, value in row.items() if name not in broken}
            problems += row_problems(kept, prompt_key)
        for place, message in dict(problems).items():
            fix = f"verl-msgrpo check-data {file.path}; verl-msgrpo prepare writes such rows"
            yield Problem(CHECK, f"{file.path}: {place} {message}", fix)
        yield from _agents(run, file)
    yield from _steps(run, files)


def uses_tools(config: DictConfig) -> bool:
    """Whether tools are set up, so that some agent loop has to call them."""
    keys = ("tool_config_path", "function_tool_path")
    named = any(text(config, f"{ROLLOUT}.multi_turn.{key}") for key in keys)
    return named or is_on(config, f"{ROLLOUT}.multi_turn.enable")


def _agents(run: Run, file: DataFile) -> Iterator[Problem]:
    key = f"{ROLLOUT}.agent.default_agent_loop"
    default = text(run.config, key) or TOOLLESS_AGENT
    named = file.agents if file.agents is not None else [default]
    known = known_agents(run.config)
    for name in named:
        if known is not None and name not in known and file.agents is not None:
            yield unknown(CHECK, f"{file.path}: agent_name", name, list(known))
    if not uses_tools(run.config):
        return
    if set(named) == {TOOLLESS_AGENT}:
        why = "has no column agent_name" if file.agents is None else "names it in every row"
        message = f"{file.path} {why}: {TOOLLESS_AGENT} runs it, which never calls a tool"
        fix = f"{key}=search_tool_agent"
        if file.agents is not None:
            fix = "verl-msgrpo prepare hotpotqa --agent-loop search_tool_agent (a row's name wins)"
        yield Problem(CHECK, message, fix)
    elif file.agents is not None and default not in named and default != TOOLLESS_AGENT:
        message = f"{file.path}: its rows name {', '.join(named)}, which wins over {key}={default}"
        fix = f"{key}={named[0]}, or verl-msgrpo prepare hotpotqa --agent-loop {default}"
        yield Problem(CHECK, message, fix)


def _steps(run: Run, files: list[DataFile]) -> Iterator[Problem]:
    rows = train_rows(run, files)
    if rows is None:
        return
    if rows < run.prompts:
        message = f"{rows} training rows make no batch of data.train_batch_size={run.prompts}"
        yield Problem(CHECK, message, f"data.train_batch_size={max(1, rows)}")
        return
    wanted = whole(run.config, "trainer.total_training_steps", default=0)
    epochs = whole(run.config, "trainer.total_epochs")
    possible = epochs * (rows // run.prompts)
    if wanted > possible:
        message = (
            f"trainer.total_epochs={epochs} ends the run after {possible} of {wanted} steps: "
            f"{rows} rows make {rows // run.prompts} steps an epoch"
        )
        fix = f"trainer.total_epochs={-(-wanted // (rows // run.prompts))}"
        yield Problem(CHECK, message, fix, WARNING)


def train_rows(run: Run, files: list[DataFile]) -> int | None:
    """Training rows, None where not every file can be counted here."""
    mine = [file.rows for file in files if file.key == "data.train_files"]
    if not mine or len(mine) != len(texts(run.config, "data.train_files")):
        return None
    limit = whole(run.config, "data.train_max_samples", default=-1)
    return min(sum(mine), limit) if limit > 0 else sum(mine)


def first_row(files: list[DataFile]) -> Mapping[str, object] | None:
    """A row to try the reward on."""
    return next((file.sample[0] for file in files if file.sample), None)
