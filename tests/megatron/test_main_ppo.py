"""`main_ppo model_engine=megatron` in bfloat16, with vLLM's CPU build and the search tool."""

import collections
import math
import statistics
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.brute_force import advantages
from tests.megatron.main_ppo import GROUP, PROMPTS, MegatronRun, MegatronRuns

pytestmark = pytest.mark.e2e

# Trainer and rollout compute in bfloat16, each its own way. Absolute difference of the log-prob of
# a token that the policy wrote, over about 750 of them: mean 0.7e-3 to 2.3e-3 in six steps of two
# runs, at most 0.098. One step of training moves it by 0.022 on average, two by 0.042.
MEAN_DIFFERENCE = 6e-3
LARGEST_DIFFERENCE = 0.25


@pytest.fixture(scope="module")
def runs(tmp_path_factory, megatron_environment):
    pytest.importorskip("vllm", reason="needs vLLM: bash scripts/setup_cpu.sh")
    base = tmp_path_factory.mktemp("megatron-main-ppo")
    # The warm start takes a minute; tests/e2e, in the same session, has done it before.
    made = tmp_path_factory.getbasetemp() / "quickstart0/data"
    if (made / ".made_of").is_file():
        (base / "data").symlink_to(made)
    runs = MegatronRuns(base, megatron_environment)
    try:
        runs.prepare()
        yield runs
    finally:
        runs.stop()


@pytest.fixture(scope="module")
def first(runs: MegatronRuns) -> MegatronRun:
    """Two steps, and a checkpoint."""
    return runs.run(
        "first",
        "trainer.total_training_steps=2",
        "trainer.save_freq=2",
        "trainer.resume_mode=disable",
    )


@pytest.fixture(scope="module")
def resumed(runs: MegatronRuns, first: MegatronRun) -> MegatronRun:
    """The third step, by new processes."""
    return runs.run(
        "resumed",
        "trainer.total_training_steps=3",
        "trainer.save_freq=-1",
        "trainer.resume_mode=auto",
    )


def differences(rows: list[dict], left: str, right: str) -> list[float]:
    """Of each token that the policy wrote."""
    found = []
    for row in rows:
        tokens = zip(row[left], row[right], row["response_mask"], strict=True)
        found += [abs(a - b) for a, b, written in tokens if written]
    return found


def with_log_probs(rows: list[dict], folder: Path) -> list[dict]:
    """The rows with those of the Hugging Face model in `folder`, as `hugging_face`."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    found = []
    for row in rows:
        tokens = torch.tensor([row["prompts"] + row["responses"]])
        with torch.no_grad():
            logits = model(tokens).logits[0, len(row["prompts"]) - 1 : -1].float()
        responses = torch.tensor(row["responses"])
        log_probs = logits.log_softmax(-1).gather(-1, responses[:, None]).squeeze(1)
        found.append({**row, "hugging_face": log_probs.tolist()})
    return found


def groups_of(step: dict) -> list[list[dict]]:
    groups = collections.defaultdict(list)
    for row in step["rows"]:
        groups[row["uid"]].append(row)
    return list(groups.values())


def test_two_steps_with_gradients_and_searches(first: MegatronRun):
    assert [step["step"] for step in first.steps] == [1, 2]
    assert len(first.metrics) == 2
    for metrics, step in zip(first.metrics, first.steps, strict=True):
        assert 0 < metrics["actor/grad_norm"] < math.inf
        assert math.isfinite(metrics["actor/pg_loss"])
        searches = sum("<tool_response>" in row["read"] for row in step["rows"])
        assert searches > PROMPTS * GROUP / 4


def test_advantages_are_those_of_the_definition(first: MegatronRun):
    for step in first.steps:
        groups = groups_of(step)
        assert [len(rows) for rows in groups] == [GROUP] * PROMPTS
        for rows in groups:
            expected = advantages([sum(row["rm_scores"]) for row in rows])
            for row, advantage in zip(rows, expected, strict=True):
                for value, written in zip(row["advantages"], row["response_mask"], strict=True):
                    assert value == pytest.approx(advantage if written else 0.0, abs=1e-5)


def test_trainer_and_rollout_agree(first: MegatronRun, resumed: MegatronRun):
    for step in first.steps + resumed.steps:
        found = differences(step["rows"], "old_log_probs", "rollout_log_probs")
        assert statistics.mean(found) < MEAN_DIFFERENCE
        assert max(found) < LARGEST_DIFFERENCE


def test_vllm_samples_from_the_updated_weights(first: MegatronRun, runs: MegatronRuns):
    """The first weights explain the first step's samples, and not those of the second."""
    means = []
    for step in first.steps:
        rows = with_log_probs(step["rows"], runs.data / "model")
        means.append(statistics.mean(differences(rows, "rollout_log_probs", "hugging_face")))
    assert means[0] < MEAN_DIFFERENCE
    second = differences(first.steps[1]["rows"], "old_log_probs", "rollout_log_probs")
    assert means[1] > 3 * statistics.mean(second)


def test_resumed_run_has_the_saved_state(first: MegatronRun, resumed: MegatronRun):
    (saved,), (loaded,) = first.checkpoints, resumed.checkpoints
    assert (saved["event"], loaded["event"]) == ("save_checkpoint", "load_checkpoint")
    assert saved["moments"] > 0
    for what in ("weights", "optimizer", "moments"):
        assert loaded[what] == saved[what]
    assert [step["step"] for step in resumed.steps] == [3]


def test_checkpoint_holds_a_hugging_face_model(resumed: MegatronRun, runs: MegatronRuns):
    """README: the folder is what the trainer and vLLM compute with after the checkpoint."""
    exported = runs.checkpoints / "global_step_2/actor/model/huggingface"
    rows = with_log_probs(resumed.steps[0]["rows"], exported)
    for which in ("old_log_probs", "rollout_log_probs"):
        assert statistics.mean(differences(rows, which, "hugging_face")) < MEAN_DIFFERENCE
    before = with_log_probs(resumed.steps[0]["rows"], runs.data / "model")
    exported_difference = statistics.mean(differences(rows, "old_log_probs", "hugging_face"))
    first_difference = statistics.mean(differences(before, "old_log_probs", "hugging_face"))
    assert first_difference > 3 * exported_difference
