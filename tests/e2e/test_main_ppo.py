"""The real `python -m verl.trainer.main_ppo` on CPU, through the quickstart's script."""

import collections
import math
import re
import statistics
import time

import psutil
import pytest

from tests.e2e.runs import Quickstart, Run, read_jsonl
from verl_msgrpo.estimator.reference import reference_advantages

pytestmark = pytest.mark.e2e

GROUP_SIZE = 8
STEPS = 15  # of the quickstart


def test_every_step_with_a_signal_has_a_gradient(full_run: Run):
    steps = [entry["data"] for entry in full_run.metrics if "actor/grad_norm" in entry["data"]]
    assert len(steps) == len(full_run.steps) == STEPS
    with_signal = 0
    for data, step in zip(steps, full_run.steps, strict=True):
        # Late in the run all eight groups of a step may agree: then there is nothing to learn.
        signal = any(row["advantage"] != [0.0] for row in step["rows"])
        assert math.isfinite(data["actor/pg_loss"])
        assert math.isfinite(data["actor/grad_norm"])
        assert (data["actor/grad_norm"] > 0) == signal
        with_signal += signal
    assert with_signal >= 11


def test_groups_are_the_rollouts_of_one_prompt(full_run: Run):
    for step in full_run.steps:
        groups = collections.defaultdict(list)
        for row in step["rows"]:
            groups[row["uid"]].append(row)
        assert [len(rows) for rows in groups.values()] == [GROUP_SIZE] * 8
        assert all(len({row["prompt"] for row in rows}) == 1 for rows in groups.values())


def test_advantages_are_those_of_the_definition(full_run: Run):
    """Every group of three steps against brute force in exact arithmetic."""
    graded = 0
    for step in full_run.steps[::7]:
        groups = collections.defaultdict(list)
        for row in step["rows"]:
            groups[row["uid"]].append(row)
        for rows in groups.values():
            rewards = [row["reward"] for row in rows]
            graded += len(set(rewards)) > 2
            for row, expected in zip(rows, reference_advantages(rewards), strict=True):
                assert len(row["advantage"]) == 1
                assert row["advantage"][0] == pytest.approx(expected, abs=1e-5)
    assert graded > 0


def test_the_log_shows_what_the_method_did(full_run: Run):
    logged = [entry["data"] for entry in full_run.metrics if "actor/grad_norm" in entry["data"]]
    for data, step in zip(logged, full_run.steps, strict=True):
        groups = collections.defaultdict(list)
        for row in step["rows"]:
            groups[row["uid"]].append(row["reward"])
        varied = [rewards for rewards in groups.values() if len(set(rewards)) > 1]
        assert data["ms_grpo/groups"] == len(groups)
        assert data["ms_grpo/homogeneous_share"] == pytest.approx(1 - len(varied) / len(groups))
        if varied:
            distinct = statistics.fmean(len(set(rewards)) for rewards in varied)
            assert data["ms_grpo/distinct_rewards"] == pytest.approx(distinct)
            assert 0.6 < data["ms_grpo/scale"] < 0.9
            if distinct == 2:
                assert data["ms_grpo/correction"] < 1e-9
            else:
                assert data["ms_grpo/correction"] > 0


def test_a13_tool_tokens_are_masked(full_run: Run):
    observed = 0
    for step in full_run.steps:
        for row in step["rows"]:
            assert "<tool_response>" not in row["written"]
            assert "Doc 1 (Title:" not in row["written"]
            assert "<answer>" not in row["read"]
            assert row["advantage_outside"] == 0
            observed += "<tool_response>" in row["read"]
    assert observed > 100


def test_vllm_samples_from_the_updated_weights(full_run: Run):
    """After every update the trainer's log-probs still agree with those of the rollout.

    The weights move by much more than that between the first and the last step, as the accuracy
    shows: a rollout with old weights would not agree.
    """
    trained = [entry["data"] for entry in full_run.metrics if "actor/grad_norm" in entry["data"]]
    differences = [data["training/rollout_probs_diff_mean"] for data in trained]
    assert statistics.mean(differences) < 1e-4
    # A step in which the policy writes what it has hardly ever seen is a little above its mean.
    assert max(differences) < 3e-4
    for step in full_run.steps:
        assert statistics.median(row["log_prob_difference"] for row in step["rows"]) < 1e-3


def held_out_accuracy(run: Run) -> list[tuple[float, float]]:
    """(with search, without), before training and after."""
    found = []
    for entry in run.metrics:
        data = entry["data"]
        keys = [f"val-core/quickstart/{kind}/acc/mean@1" for kind in ("search", "no_search")]
        if keys[0] in data:
            found.append((data[keys[0]], data[keys[1]]))
    return found


def test_the_policy_learns_to_search(full_run: Run):
    (before, memory_before), (after, memory_after) = held_out_accuracy(full_run)
    assert before < 0.5
    assert after >= 0.7
    assert max(memory_before, memory_after) < 0.3
    assert re.search(rf"^step +{STEPS} ", full_run.output, re.MULTILINE)
    assert list((full_run.folder / "run").glob("*.png"))
    assert (full_run.folder / f"run/checkpoints/global_step_{STEPS}").is_dir()


def children_killed(pid: int) -> None:
    """Kill -9 for the whole tree: driver, Ray and its workers, vLLM."""
    tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(tree, timeout=60)


def test_kill_and_resume(quickstart: Quickstart):
    """Killed after the checkpoint of step 2, the run goes on from there as it would have."""
    saving = [
        f"trainer.default_local_dir={quickstart.base}/checkpoints",
        "trainer.save_freq=2",
        "trainer.test_freq=-1",
        "trainer.val_before_train=False",
    ]
    killed = quickstart.start("killed", *saving)
    recorded = quickstart.base / "killed" / "steps.jsonl"
    deadline = time.monotonic() + 1200
    while not recorded.exists() or len(recorded.read_text().splitlines()) < 3:
        assert killed.poll() is None, killed.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    children_killed(killed.pid)
    killed.wait(timeout=60)
    before = {entry["step"]: entry for entry in read_jsonl(recorded)}

    resumed = quickstart.run("resumed", *saving, "trainer.resume_mode=auto", STEPS=4)
    saved = read_jsonl(quickstart.base / "killed" / "state.jsonl")[0]
    loaded = resumed.states[0]
    assert saved["event"] == "save_checkpoint"
    assert loaded["event"] == "load_checkpoint"
    assert saved["moments"] > 0
    for what in ("weights", "optimizer", "moments", "lr"):
        assert loaded[what] == saved[what]

    # The killed run was never interrupted before its step 3: these are the prompts that come next.
    assert [entry["step"] for entry in resumed.steps] == [3, 4]
    assert prompts(resumed.steps[0]) == prompts(before[3])
    assert prompts(before[3]).isdisjoint(prompts(before[2]) | prompts(before[1]))


def prompts(step: dict) -> set[str]:
    return {row["prompt"] for row in step["rows"]}


def test_two_ranks(quickstart: Quickstart):
    run = quickstart.run(
        "two-ranks", "trainer.test_freq=-1", "trainer.val_before_train=False", STEPS=2, RANKS=2
    )
    steps = [entry["data"] for entry in run.metrics if "actor/grad_norm" in entry["data"]]
    assert len(steps) == 2
    for data in steps:
        assert data["training/rollout_probs_diff_mean"] < 1e-4
        assert 0 < data["actor/grad_norm"] < math.inf
    assert {state["rank"] for state in run.states} == {0, 1}
