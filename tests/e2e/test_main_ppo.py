"""The real `python -m verl.trainer.main_ppo` on CPU, through the quickstart's script."""

import collections
import contextlib
import math
import re
import statistics
import time

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.runs import END_S, LIMIT_S, Quickstart, Run, end, read_jsonl
from verl_msgrpo.estimator.reference import reference_advantages

pytestmark = pytest.mark.e2e

GROUP_SIZE = 8
STEPS = 15  # of the quickstart


def test_every_step_with_a_signal_has_a_gradient(full_run: Run):
    assert len(full_run.trained) == len(full_run.steps) == STEPS
    with_signal = 0
    for data, step in zip(full_run.trained, full_run.steps, strict=True):
        # Late in the run all eight groups of a step may agree: then there is nothing to learn.
        signal = any(advantage != 0 for row in step["rows"] for advantage in row["advantage"])
        assert math.isfinite(data["actor/pg_loss"])
        assert math.isfinite(data["actor/grad_norm"])
        assert (data["actor/grad_norm"] > 0) == signal
        with_signal += signal
    assert with_signal > 0


def test_groups_are_the_rollouts_of_one_prompt(full_run: Run):
    for step in full_run.steps:
        groups = collections.defaultdict(list)
        for row in step["rows"]:
            groups[row["uid"]].append(row)
        assert [len(rows) for rows in groups.values()] == [GROUP_SIZE] * 8
        assert all(len({row["prompt"] for row in rows}) == 1 for rows in groups.values())


def test_advantages_are_those_of_the_definition(full_run: Run):
    """Every group against brute force in exact arithmetic."""
    graded = 0
    for step in full_run.steps:
        groups = collections.defaultdict(list)
        for row in step["rows"]:
            groups[row["uid"]].append(row)
        for rows in groups.values():
            rewards = [row["reward"] for row in rows]
            graded += len(set(rewards)) > 2
            for row, expected in zip(rows, reference_advantages(rewards), strict=True):
                assert row["advantage"] == [pytest.approx(expected, abs=1e-5)]
    assert graded > 0  # of 120 groups, of which every third or fourth has three distinct rewards


def test_the_log_shows_what_the_method_did(full_run: Run):
    for data, step in zip(full_run.trained, full_run.steps, strict=True):
        groups = collections.defaultdict(list)
        for row in step["rows"]:
            groups[row["uid"]].append(row["reward"])
        varied = [rewards for rewards in groups.values() if len(set(rewards)) > 1]
        assert data["ms_grpo/groups"] == len(groups)
        assert data["ms_grpo/homogeneous_share"] == pytest.approx(1 - len(varied) / len(groups))
        if varied:
            distinct = statistics.fmean(len(set(rewards)) for rewards in varied)
            assert data["ms_grpo/distinct_rewards"] == pytest.approx(distinct)
            # 0.689 to 0.838 over all groups of eight rewards 0, 0.1, 0.4 and 1.
            assert 0.68 < data["ms_grpo/scale"] < 0.85
            if distinct == 2:
                assert data["ms_grpo/correction"] < 1e-9
            else:
                assert data["ms_grpo/correction"] > 0


def test_what_the_policy_sampled_is_trained_on_and_nothing_else(full_run: Run, quickstart):
    """Turn by turn: the tokens under the mask are those that vLLM sampled."""
    tokenizer = AutoTokenizer.from_pretrained(quickstart.model)
    end_of_call = tokenizer.convert_tokens_to_ids("</tool_call>")
    sampled = collections.defaultdict(list)
    for turn in full_run.turns:
        sampled[turn["rollout"]].append(turn["sampled"])

    def is_kept(written: list[int], turn: list[int]) -> bool:
        # What the policy writes after its call, before it sees the result, is discarded.
        cut = written[-1] == end_of_call and turn[: len(written)] == written
        return cut or written == turn

    def rollouts_like(written: list[list[int]]) -> list[list[list[int]]]:
        return [
            turns
            for turns in sampled.values()
            if len(turns) == len(written) and all(map(is_kept, written, turns))
        ]

    observed = 0
    for step in full_run.steps:
        for row in step["rows"]:
            assert rollouts_like(row["written_turns"]), row
            assert row["advantage_outside"] == 0
            # Tags of an observation are made harmless, so these could only be the policy's.
            assert "<answer>" not in row["read"]
            assert "<tool_call>" not in row["read"]
            if len(row["written_turns"]) > 1:
                assert "<tool_response>" in row["read"]
                observed += 1
    assert observed > 0


def test_vllm_samples_from_the_updated_weights(full_run: Run, quickstart):
    """What the trainer computes explains what vLLM samples; what the first weights say does not.

    Both compute in float32, so that the two differ by rounding only.
    """
    first, last = full_run.steps[0]["rows"], full_run.steps[-1]["rows"]
    untrained = AutoModelForCausalLM.from_pretrained(quickstart.model, dtype=torch.float32)
    for step in full_run.steps:
        rounding = statistics.median(row["log_prob_difference"] for row in step["rows"])
        assert rounding < 1e-3
    assert statistics.median(distance(untrained, row) for row in first) < 1e-3
    assert statistics.median(distance(untrained, row) for row in last) > 1e-2


def distance(model: torch.nn.Module, row: dict) -> float:
    """Mean absolute difference of a row's sampling log-probs from the model's."""
    tokens = torch.tensor([row["prompt_ids"] + row["response_ids"]])
    with torch.no_grad():
        logits = model(tokens).logits[0, len(row["prompt_ids"]) - 1 : -1]
    found = logits.log_softmax(-1).gather(1, tokens[0, len(row["prompt_ids"]) :, None]).squeeze(1)
    mask = torch.tensor(row["response_mask"], dtype=torch.bool)
    return (found - torch.tensor(row["rollout_log_probs"]))[mask].abs().mean().item()


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
    """Far from the bars of scripts/check_quickstart.py, which are about how much it learns."""
    (before, _), (after, from_memory) = held_out_accuracy(full_run)
    assert after > before + 0.15
    assert after > from_memory + 0.15


def test_the_run_leaves_its_results(full_run: Run):
    assert re.search(rf"^step +{STEPS} ", full_run.output, re.MULTILINE)
    assert (full_run.folder / "run/learning_curve.png").is_file()
    assert (full_run.folder / f"run/checkpoints/global_step_{STEPS}").is_dir()
    page = full_run.folder / "run/report.html"
    assert f"report          {page}\n" in full_run.output
    assert "ms_grpo" in page.read_text()


def kill_all(pid: int) -> None:
    """Kill -9 for the whole tree: run.sh, driver, Ray and its workers, vLLM."""
    tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(tree, timeout=END_S)


def test_kill_and_resume(quickstart: Quickstart):
    """Killed in step 3, after the checkpoint of step 2, the run goes on as it would have."""
    saving = [
        f"trainer.default_local_dir={quickstart.base}/checkpoints",
        "trainer.save_freq=2",
        "trainer.test_freq=-1",
        "trainer.val_before_train=False",
    ]
    killed = quickstart.start("killed", *saving, PROBE_HOLD_AT=3)
    recorded = quickstart.base / "killed" / "steps.jsonl"
    try:
        deadline = time.monotonic() + LIMIT_S
        while not recorded.exists() or recorded.read_text().count("\n") < 3:
            assert killed.poll() is None, quickstart.output("killed")
            assert time.monotonic() < deadline, quickstart.output("killed")
            time.sleep(0.2)
        kill_all(killed.pid)
        killed.wait(timeout=END_S)
    finally:
        end(killed)
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
    assert len(run.trained) == 2
    for data, step in zip(run.trained, run.steps, strict=True):
        assert statistics.median(row["log_prob_difference"] for row in step["rows"]) < 1e-3
        assert 0 < data["actor/grad_norm"] < math.inf
    assert {state["rank"] for state in run.states} == {0, 1}
