"""What verl's dynamic sampling (`algorithm.filter_groups`) keeps, by the numbers of our rewards."""

import pytest

pytest.importorskip("verl")
import torch
from verl.trainer.ppo.v1 import replay_buffer

from tests.reward_fns.loading import load

WRONG_GUESS, WRONG_BOX, RIGHT_BOX = "no idea", r"\boxed{B}", r"\boxed{A}"


def kept(responses, metric, monkeypatch):
    """Whether verl's own replay buffer keeps a group of these responses, whose answer is A."""
    score = load("multiple_choice")
    rewards = [score("x", response, "A", {}, format_bonus=0.1) for response in responses]
    buffer = replay_buffer.ReplayBuffer(
        *("sync", {}, None, "drop", {}), refill_fn=int, filter_groups_metric=metric
    )
    buffer.finished_keys["train"] = {"u"}
    buffer.partitions["train"] = {f"u_{i}_0": {} for i in range(len(rewards))}
    columns = {
        "rm_scores": [torch.tensor([0.0, reward["score"]]) for reward in rewards],
        "extra_fields": [{"reward_extra_info": reward} for reward in rewards],
    }
    monkeypatch.setattr(
        replay_buffer.tq,
        "kv_batch_get",
        lambda select_fields, **_: {name: columns[name] for name in select_fields},
    )
    dropped, _ = buffer._dapo_filtered_keys("train")
    return dropped == set()


def test_a_group_that_is_all_wrong_is_dropped_by_acc_whatever_its_form_earns(monkeypatch):
    all_wrong = [WRONG_BOX, WRONG_GUESS, WRONG_BOX, WRONG_GUESS]  # scores .1, 0, .1, 0
    assert not kept(all_wrong, "acc", monkeypatch)
    assert kept(all_wrong, "reward", monkeypatch)  # by the score, form alone would be learnt


def test_a_group_with_both_is_kept(monkeypatch):
    assert kept([RIGHT_BOX, WRONG_BOX], "acc", monkeypatch)
    assert not kept([RIGHT_BOX, RIGHT_BOX], "acc", monkeypatch)
