"""The five tasks together, from raw data to a table: prepare, main_ppo with dispatch.py, evaluate.

The rows are made up, in the schemas of the public data sets. The policy is a tiny Qwen2 that knows
a right and a wrong answer to each of them by heart, so that the rewards of a group differ.
"""

import csv
import json
import math
import re
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.e2e.runs import END_S, ROOT, Quickstart, Run, read_jsonl
from tests.search.server.conftest import served
from tests.tasks import raw_rows
from verl_msgrpo import cli
from verl_msgrpo.search.observation import ByteMeasure, render
from verl_msgrpo.search.server.index import open_index

pytestmark = pytest.mark.e2e

QUERY = "T1"
TRAIN_ROWS, VALIDATION_ROWS, VALIDATION_SAMPLES, STEPS = 4, 2, 2, 2
GROUP_SIZE = 4


def program(number: int) -> dict:
    return raw_rows.eurus(number, tests={"inputs": ["1 2\n"], "outputs": ["3\n"]})


def contest(number: int) -> dict:
    return raw_rows.livecodebench(0, question_content=f"Problem {number}: add the two numbers.")


def hop(number: int) -> dict:
    return raw_rows.hotpot(number, answer="Dune")


# What is to be learned by heart is short: the policy has 0.4 million parameters.
TASKS = {
    "aime24": (raw_rows.dapo, raw_rows.aime),
    "riddlesense": (raw_rows.riddle, raw_rows.riddle),
    "livecodebench": (program, contest),
    "medqa": (raw_rows.medqa, raw_rows.medqa),
    "hotpotqa": (hop, hop),
}
EVALUATED = {
    "HuggingFaceH4/aime_2024",
    "INK-USC/riddle_sense",
    "livecodebench/code_generation_lite",
    "GBaker/MedQA-USMLE-4-options",
    "hotpotqa/hotpot_qa",
}
OWN_KEYS = {"hedged", "em", "f1", "passed"}  # of one task each; a mixed batch has them in every row


def command(*words: object) -> None:
    assert cli.main([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """task -> (training rows, validation rows) in verl's format, and the files that hold them."""
    folder = tmp_path_factory.mktemp("five-tasks")
    rows, files = {}, {"train": [], "validation": []}
    for task, (train, validation) in TASKS.items():
        sources = {
            "train": [train(number) for number in range(TRAIN_ROWS)],
            "validation": [validation(number + 10) for number in range(VALIDATION_ROWS)],
        }
        raw = {
            name: raw_rows.write(folder / task / f"raw-{name}.jsonl", found)
            for name, found in sources.items()
        }
        out = folder / task / "verl"
        command("prepare", task, "--out", out, *(w for n, p in raw.items() for w in (f"--{n}", p)))
        rows[task] = {name: pq.read_table(out / f"{name}.parquet").to_pylist() for name in raw}
        for name in raw:
            files[name].append(out / f"{name}.parquet")
    command("check-data", *files["train"])
    command("check-data", *files["validation"])
    return folder, rows, files


def found_by(index) -> str:
    """What the search tool will show for the policy's only query."""
    backend = open_index(index)
    documents = [json.loads(hit.document) for hit in backend.search([QUERY], 3)[0]]
    backend.close()
    return render([[document["contents"] for document in documents]], 512, ByteMeasure())


def answers(task: str, row: dict, observation: str) -> list[list[dict]]:
    """A right conversation and a wrong one."""
    gold = row["reward_model"]["ground_truth"]
    pairs = {
        "aime24": (f"\\boxed{{{gold}}}", "\\boxed{999}"),
        "riddlesense": (f"\\boxed{{{gold}}}", "\\boxed{A or B}"),
        "livecodebench": tuple(
            f"```python\nprint({function}(map(int, input().split())))\n```"
            for function in ("sum", "max")
        ),
        "medqa": (f"\\boxed{{{gold}}}", "I do not know."),
        "hotpotqa": (f"<answer>{gold}</answer>", "<answer>no</answer>"),
    }
    question = [{"role": "user", "content": row["prompt"][0]["content"]}]
    if task == "hotpotqa":
        call = {"name": "search", "arguments": {"query_list": [QUERY]}}
        question += [
            {"role": "assistant", "content": f"<tool_call>{json.dumps(call)}</tool_call>"},
            {"role": "tool", "content": observation},
        ]
    return [[*question, {"role": "assistant", "content": text}] for text in pairs[task]]


def write_policy(folder, rows, observation: str) -> None:
    sys.path.insert(0, str(ROOT / "examples" / "quickstart"))
    try:
        import policy
    finally:
        sys.path.pop(0)
    conversations = [
        conversation
        for task, parts in rows.items()
        for row in parts["train"] + parts["validation"]
        for conversation in answers(task, row, observation)
    ]
    # Sentences of the prompts are tokens: a conversation stays below the tiny model's 512.
    prompts = {conversation[0]["content"] for conversation in conversations}
    sentences = sorted({s for prompt in prompts for s in re.findall(r"[^.\n]+[.\n]*", prompt)})
    tokenizer = policy.build_tokenizer(sentences, [])
    model = policy.build_model(tokenizer, 0)
    examples = policy.encode(tokenizer, conversations)
    batch = policy.batch(examples, tokenizer.pad_token_id)
    policy.warm_start(model, iter(lambda: batch, None), steps=100)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")


@pytest.fixture(scope="module")
def run(data, quickstart: Quickstart) -> Run:
    folder, rows, files = data
    index = folder / "index"
    command("index", "--corpus", folder / "hotpotqa" / "raw-train.jsonl", "--output", index)
    write_policy(folder, rows, found_by(index))
    with served(folder, "--index", index) as server:
        return quickstart.run(
            "five-tasks",
            *(f"data.{name}_files={list(map(str, found))}" for name, found in (
                ("train", files["train"]), ("val", files["validation"]))),
            "data.max_prompt_length=256",
            "data.max_response_length=256",
            "actor_rollout_ref.rollout.max_model_len=512",
            f"actor_rollout_ref.model.path={folder / 'model'}",
            f"actor_rollout_ref.rollout.val_kwargs.n={VALIDATION_SAMPLES}",
            f"reward.custom_reward_function.path={ROOT / 'reward_fns' / 'dispatch.py'}",
            STEPS=STEPS,
            TRAIN_BATCH_SIZE=10,
            ROLLOUT_N=GROUP_SIZE,
            SEARCH_URL=f"{server.url}/retrieve",
        )  # fmt: skip


def rollouts(run: Run, step: int) -> list[dict]:
    """What verl wrote of a training step."""
    return read_jsonl(run.folder / "run" / "rollouts" / f"{step}.jsonl")


def dump(run: Run, step: int) -> list[dict]:
    """What verl wrote at a validation."""
    return read_jsonl(run.folder / "run" / "validation" / f"{step}.jsonl")


def test_every_task_is_trained_on(run: Run, data):
    _, rows, _ = data
    task_of = {row["prompt"][0]["content"]: task for task in rows for row in rows[task]["train"]}
    assert len(task_of) == TRAIN_ROWS * len(TASKS)
    rewards = {task: [] for task in TASKS}
    for step in run.steps:
        for row in step["rows"]:
            (task,) = {task_of[prompt] for prompt in task_of if prompt in row["prompt"]}
            rewards[task].append(row["reward"])
            # The agent loops of the other tasks have no tools.
            assert ("<tool_response>" in row["read"]) <= (task == "hotpotqa")
    assert {task: len(found) for task, found in rewards.items()} == dict.fromkeys(
        TASKS, TRAIN_ROWS * GROUP_SIZE
    )
    # The policy knows a right answer and a wrong one to each question, and samples 80 times.
    assert {0.0, 1.0} <= {reward for found in rewards.values() for reward in found}
    assert len(run.trained) == STEPS
    assert all(math.isfinite(data["actor/grad_norm"]) for data in run.trained)
    assert any(data["actor/grad_norm"] > 0 for data in run.trained)


def test_rows_of_all_tasks_have_the_same_keys(run: Run):
    for step in (0, STEPS):
        for row in dump(run, step):
            assert row.keys() >= OWN_KEYS | {"score", "acc", "pred", "timeout"}
            assert all(value is not None for value in row.values())
            assert isinstance(row["pred"], str)


def test_scores_are_those_of_the_reward_called_by_itself(run: Run, data):
    """Of each rollout, in training and in validation, whatever the policy has written."""
    from verl_msgrpo.rewards.dispatch import compute_score

    _, rows, _ = data
    for part, dumped in (
        ("train", [entry for step in range(1, STEPS + 1) for entry in rollouts(run, step)]),
        ("validation", dump(run, STEPS)),
    ):
        known = {row["prompt"][0]["content"]: row for task in rows for row in rows[task][part]}
        seen = set()
        for entry in dumped:
            (row,) = (known[prompt] for prompt in known if prompt in entry["input"])
            gold = row["reward_model"]["ground_truth"]
            reward = compute_score(row["data_source"], entry["output"], gold, row["extra_info"])
            assert reward["score"] == pytest.approx(entry["score"])
            if part == "validation":  # verl's dumps of training have no more than the score
                assert reward["pred"] == entry["pred"]
            seen.add(row["data_source"])
        assert seen == {row["data_source"] for row in known.values()}
        assert part == "train" or seen == EVALUATED


def test_evaluate_agrees_with_verls_own_means(run: Run, data, tmp_path):
    _, _, files = data
    dumped = run.folder / "run" / "validation" / f"{STEPS}.jsonl"
    words = [dumped, "--data", *files["validation"], "--csv", tmp_path / "table.csv"]
    done = subprocess.run(
        [sys.executable, "-m", "verl_msgrpo.cli", "evaluate", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=END_S,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "table.csv").open() as file:
        table = list(csv.DictReader(file))
    logged = [entry["data"] for entry in run.metrics][-1]
    for source in EVALUATED:
        assert source in done.stdout
        (average,) = (
            float(row["value"])
            for row in table
            if row["data_source"] == source and row["quantity"].startswith("avg@")
        )
        verls = logged[f"val-core/{source}/acc/mean@{VALIDATION_SAMPLES}"]
        assert average == pytest.approx(verls, abs=1e-6)
