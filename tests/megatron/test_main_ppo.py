"""`main_ppo model_engine=megatron` in bfloat16, with vLLM's CPU build and the search tool."""

import collections
import math
import statistics
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.megatron.conftest import run_python, run_worker
from tests.megatron.main_ppo import (
    GROUP,
    PROMPTS,
    MegatronRun,
    arguments,
    prepare,
    retrieval_server,
)
from verl_msgrpo.estimator.reference import reference_advantages

pytestmark = pytest.mark.e2e

# Trainer and rollout compute in bfloat16, each its own way. Absolute difference of the log-prob of
# a token that the policy wrote, over about 750 of them: mean 0.7e-3 to 2.3e-3 in eleven steps of
# four runs, at most 0.098. One step of training moves it by 0.022 to 0.031 on average. The largest
# has room for some roundings of a logit (0.125 each from 16 on); a token that is compared with its
# neighbour differs by more.
MEAN_DIFFERENCE = 6e-3
LARGEST_DIFFERENCE = 1.0


@pytest.fixture(scope="module")
def environment(megatron_environment) -> dict[str, str]:
    return {
        **megatron_environment,
        "VERL_USE_EXTERNAL_MODULES": "local_megatron,run_probe",
        "OMP_WAIT_POLICY": "PASSIVE",
        "RAY_worker_niceness": "0",
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory, environment) -> MegatronRun:
    """Two steps, and a checkpoint after each."""
    pytest.importorskip("vllm", reason="needs vLLM: bash scripts/setup_cpu.sh")
    folder = tmp_path_factory.mktemp("megatron-main-ppo")
    # The warm start takes a minute; tests/e2e, in the same session, has done it before.
    made = tmp_path_factory.getbasetemp() / "quickstart0/data"
    if (made / ".made_of").is_file():
        (folder / "data").symlink_to(made)
    prepare(folder)
    with retrieval_server(folder) as url:
        here = {
            "RETRIEVAL_SERVICE_URL": url,
            "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
            "PROBE_DIR": str(folder),
        }
        # Hydra writes its own logs to the working directory.
        run_python(arguments(folder), {**environment, **here}, cwd=folder)
    return MegatronRun(folder)


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


def test_two_steps_with_gradients_and_searches(run: MegatronRun):
    assert [step["step"] for step in run.steps] == [1, 2]
    assert len(run.metrics) == 2
    for metrics, step in zip(run.metrics, run.steps, strict=True):
        assert 0 < metrics["actor/grad_norm"] < math.inf
        assert math.isfinite(metrics["actor/pg_loss"])
        searches = sum("<tool_response>" in row["read"] for row in step["rows"])
        assert searches > PROMPTS * GROUP / 4


def test_advantages_are_those_of_the_definition(run: MegatronRun):
    for step in run.steps:
        groups = groups_of(step)
        assert [len(rows) for rows in groups] == [GROUP] * PROMPTS
        for rows in groups:
            expected = reference_advantages([sum(row["rm_scores"]) for row in rows])
            for row, advantage in zip(rows, expected, strict=True):
                for value, written in zip(row["advantages"], row["response_mask"], strict=True):
                    assert value == pytest.approx(advantage if written else 0.0, abs=1e-5)


def test_trainer_and_rollout_agree(run: MegatronRun):
    for step in run.steps:
        found = differences(step["rows"], "old_log_probs", "rollout_log_probs")
        assert statistics.mean(found) < MEAN_DIFFERENCE
        assert max(found) < LARGEST_DIFFERENCE


def test_vllm_samples_from_the_updated_weights(run: MegatronRun):
    """The first weights explain the first step's samples, and not those of the second."""
    means = []
    for step in run.steps:
        rows = with_log_probs(step["rows"], run.folder / "data/model")
        means.append(statistics.mean(differences(rows, "rollout_log_probs", "hugging_face")))
    assert means[0] < MEAN_DIFFERENCE
    second = differences(run.steps[1]["rows"], "old_log_probs", "rollout_log_probs")
    assert means[1] > 3 * statistics.mean(second)


def test_checkpoint_is_a_hugging_face_model(run: MegatronRun):
    """What the trainer and vLLM compute with in the step after it."""
    rows = run.steps[1]["rows"]
    exported = run.folder / "checkpoints/global_step_1/actor/model/huggingface"
    found = with_log_probs(rows, exported)
    for which in ("old_log_probs", "rollout_log_probs"):
        assert statistics.mean(differences(found, which, "hugging_face")) < MEAN_DIFFERENCE
    before = with_log_probs(rows, run.folder / "data/model")
    difference = statistics.mean(differences(found, "old_log_probs", "hugging_face"))
    first_difference = statistics.mean(differences(before, "old_log_probs", "hugging_face"))
    assert first_difference > 3 * difference


def test_a_new_process_loads_the_saved_state(run: MegatronRun, environment, tmp_path):
    """How a run goes on from it: test_engine.py."""
    run_worker("resume_worker", run.folder, {**environment, "PROBE_DIR": str(tmp_path)})
    first, last = run.checkpoints
    (loaded,) = MegatronRun(tmp_path).checkpoints
    events = [entry.pop("event") for entry in (first, last, loaded)]
    assert events == ["save_checkpoint", "save_checkpoint", "load_checkpoint"]
    assert loaded["moments"] > 0
    assert loaded == last
    assert first["weights"] != last["weights"]
    assert first["optimizer"] != last["optimizer"]
