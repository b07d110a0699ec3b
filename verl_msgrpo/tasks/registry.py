"""The five tasks in one table: their sources, the forms of rows that they read, what they ask.

The first reader of a task whose columns are all in a file reads that file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from verl_msgrpo.tasks import prompts, readers
from verl_msgrpo.tasks.fields import Example
from verl_msgrpo.tasks.rows import TaskProblem

AIME24 = "HuggingFaceH4/aime_2024"
DAPO_MATH = "BytedTsinghua-SIA/DAPO-Math-17k"
RIDDLESENSE = "INK-USC/riddle_sense"
LIVECODEBENCH = "livecodebench/code_generation_lite"
MEDQA = "GBaker/MedQA-USMLE-4-options"
HOTPOTQA = "hotpotqa/hotpot_qa"

# The files that each release of LiveCodeBench added; a release holds those before it too.
LIVECODEBENCH_FILES = {
    f"v{number}": f"hf://datasets/{LIVECODEBENCH}/test{number if number > 1 else ''}.jsonl"
    for number in range(1, 7)
}


@dataclass(frozen=True)
class Reader:
    """One public form of rows.

    data_source: what the rows are called, which decides their reward.
    needs: the columns that tell the form; `uses`: further ones that `read` looks at.
    date_column: where the contest's date is, if the form has one.
    """

    data_source: str
    needs: tuple[str, ...]
    read: Callable[[Example], TaskProblem]
    uses: tuple[str, ...] = ()
    date_column: str | None = None


@dataclass(frozen=True)
class Task:
    """What becomes of a data set.

    agent_name: the agent loop that runs the rows. template: see `prompts`.
    train, validation: the default sources, see `sources.files_of`.
    validation_split: which split of a source is for validation, if the source does not say it.
    """

    name: str
    ability: str
    agent_name: str
    template: str
    readers: tuple[Reader, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]
    validation_split: str = "validation"


_VERL_USES = ("ability", "data_source", "extra_info")
_MATH_USES = ("answer", "solution", "unique_id", "type", "subject", "level")

_TASKS = (
    Task(
        name="aime24",
        ability="math",
        agent_name="single_turn_agent",
        template=prompts.MATH,
        readers=(
            Reader(AIME24, ("problem", "answer", "year"), readers.math_with_answer, uses=("id",)),
            Reader(DAPO_MATH, readers.VERL_COLUMNS, readers.math_of_verl, uses=_VERL_USES),
            Reader(DAPO_MATH, ("problem",), readers.math_with_solution, uses=_MATH_USES),
        ),
        train=(f"{DAPO_MATH}:train",),
        validation=(f"{AIME24}:train",),
    ),
    Task(
        name="riddlesense",
        ability="logic",
        agent_name="single_turn_agent",
        template=prompts.MULTIPLE_CHOICE,
        readers=(
            Reader(
                RIDDLESENSE,
                ("question", "choices", "answerKey"),
                readers.riddlesense_columns,
                uses=("id",),
            ),
            Reader(
                RIDDLESENSE, ("question", "answerKey"), readers.riddlesense_release, uses=("id",)
            ),
        ),
        # The repository itself is a script; the hub's converted files are not.
        train=(f"hf://datasets/{RIDDLESENSE}@refs/convert/parquet/*/train/*.parquet",),
        validation=(f"hf://datasets/{RIDDLESENSE}@refs/convert/parquet/*/validation/*.parquet",),
    ),
    Task(
        name="livecodebench",
        ability="code",
        agent_name="single_turn_agent",
        template=prompts.CODE,
        readers=(
            Reader(
                LIVECODEBENCH,
                ("question_content", "public_test_cases", "private_test_cases", "metadata"),
                readers.livecodebench,
                uses=("starter_code", "question_id", "platform", "difficulty", "contest_date"),
                date_column="contest_date",
            ),
            Reader(LIVECODEBENCH, readers.VERL_COLUMNS, readers.programs_of_verl, uses=_VERL_USES),
            Reader(
                LIVECODEBENCH,
                ("problem", "tests"),
                readers.programs_with_tests,
                uses=("starter_code",),
            ),
        ),
        train=("PRIME-RL/Eurus-2-RL-Data:train",),
        validation=tuple(LIVECODEBENCH_FILES.values()),
        validation_split="test",
    ),
    Task(
        name="medqa",
        ability="medicine",
        agent_name="single_turn_agent",
        template=prompts.MULTIPLE_CHOICE,
        readers=(
            Reader(MEDQA, ("question", "options", "answer_idx"), readers.medqa, ("meta_info",)),
        ),
        train=(f"{MEDQA}:train",),
        validation=(f"{MEDQA}:test",),
        validation_split="test",
    ),
    Task(
        name="hotpotqa",
        ability="multi-hop question answering",
        agent_name="search_tool_agent",
        template=prompts.SEARCH_TOOL,
        readers=(
            Reader(
                HOTPOTQA,
                ("question", "golden_answers"),
                readers.search_r1,
                uses=("id", "data_source"),
            ),
            Reader(
                HOTPOTQA,
                ("question", "answer"),
                readers.hotpotqa,
                uses=("id", "_id", "type", "level"),
            ),
        ),
        train=(f"{HOTPOTQA}/distractor:train",),
        validation=(f"{HOTPOTQA}/distractor:validation",),
    ),
)
TASKS = {task.name: task for task in _TASKS}

# Agent loops for the search task, and the prompt that each one's protocol needs.
SEARCH_AGENTS = {
    "search_tool_agent": prompts.SEARCH_TOOL,
    "search_r1_agent": prompts.SEARCH_TEXT,
}


def with_agent(task: Task, agent_name: str) -> Task:
    """The search task for another of `SEARCH_AGENTS`."""
    return replace(task, agent_name=agent_name, template=SEARCH_AGENTS[agent_name])


def reader_for(task: Task, columns: Sequence[str]) -> Reader | None:
    """The first reader of a task whose columns are all there."""
    return next((r for r in task.readers if set(r.needs) <= set(columns)), None)
