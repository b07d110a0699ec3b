"""The scripts in examples/ as tests start them, and small data for each task."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from verl_msgrpo.tasks.registry import TASKS, with_agent
from verl_msgrpo.tasks.rows import SCHEMA, TaskProblem, verl_row

ROOT = Path(__file__).parents[2]
RECIPES = {
    "math_aime24": ("aime24", "7"),
    "logic_riddlesense": ("riddlesense", "A"),
    "code_livecodebench": ("livecodebench", '{"inputs": ["1\\n"], "outputs": ["1\\n"]}'),
    "medicine_medqa": ("medqa", "A"),
    "search_hotpotqa": ("hotpotqa", '{"target": ["Dune"]}'),
}
PRESETS = (
    "Qwen/Qwen2.5-7B-Instruct",
    "meta-llama/Llama-3.2-3B-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
)
START = ["python3", "-m", "verl.trainer.main_ppo"]


def script(recipe):
    return ROOT / "examples" / recipe / "run_qwen2_5_7b_megatron.sh"


def stand_in(folder):
    """A folder for PATH whose `python3 -m verl...` prints its arguments, and checks nothing."""
    path = folder / "bin" / "python3"
    if not path.exists():
        path.parent.mkdir()
        path.write_text(
            '#!/bin/sh\n[ "$2" = verl_msgrpo.cli ] && exit 0\nprintf "%s\\n" "$0" "$@"\n'
        )
        path.chmod(0o755)
    return path.parent


def launch(recipe, *overrides, path=None, **knobs):
    """Runs a script in an environment that holds nothing but the knobs."""
    parts = [str(path or Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        "PATH": ":".join(parts),
        "HOME": "/nonexistent",
        **{name: str(value) for name, value in knobs.items()},
    }
    return subprocess.run(
        ["bash", str(script(recipe)), *overrides], env=environment, capture_output=True, text=True
    )


def overrides_of(recipe, folder, *overrides, **knobs):
    """What a script starts verl with; the preflight that it would run is left out."""
    done = launch(recipe, *overrides, path=stand_in(folder), DRY_RUN=1, **knobs)
    assert done.returncode == 0, done.stderr
    command = done.stdout.splitlines()
    assert command[:3] == START
    return command[3:]


def write_data(recipe, folder, agent=None, rows=300, validation_rows=3):
    """train.parquet and validation.parquet as `verl-msgrpo prepare` writes them."""
    name, truth = RECIPES[recipe]
    task = with_agent(TASKS[name], agent) if agent else TASKS[name]
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("validation", validation_rows)):
        made = [
            verl_row(
                TaskProblem(f"Problem {i} of {split}?", truth, num_options=4),
                data_source=task.readers[0].data_source,
                origin="made up",
                ability=task.ability,
                agent_name=task.agent_name,
                template=task.template,
                split=split,
                index=i,
            )
            for i in range(count)
        ]
        pq.write_table(pa.Table.from_pylist(made, SCHEMA), folder / f"{split}.parquet")
    return folder
