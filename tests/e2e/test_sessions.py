"""Sessions of one or two rows through the real trainer, in verl's mode `colocate_async`."""

import statistics

import pytest

from tests.e2e.runs import Quickstart, Run
from verl_msgrpo.estimator.reference import reference_advantages

pytestmark = pytest.mark.e2e

LOOP = """\
- name: search_tool_agent
  _target_: two_rows_loop.TwoRowsAgentLoop
"""


@pytest.fixture(scope="module")
def run(quickstart: Quickstart) -> Run:
    loops = quickstart.base / "loops.yaml"
    loops.write_text(LOOP)
    return quickstart.run(
        "sessions",
        "trainer.v1.trainer_mode=colocate_async",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}",
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=4096",
        "trainer.test_freq=-1",
        "trainer.val_before_train=False",
        STEPS=2,
        TRAIN_BATCH_SIZE=6,
        ROLLOUT_N=6,
    )


def sessions_of(step: dict) -> dict[str, dict[str, list[dict]]]:
    """uid -> session -> its rows, by index; the rows that verl pads with are left out."""
    groups: dict[str, dict[str, list[dict]]] = {}
    for row in sorted(step["rows"], key=lambda row: row["key"]):
        uid, session, _ = row["key"].rsplit("_", 2)
        if not uid.startswith("pad"):
            assert row["uid"] == uid
            groups.setdefault(uid, {}).setdefault(session, []).append(row)
    return groups


def test_a_session_counts_once_whatever_its_rows(run: Run):
    lengths, graded = set(), 0
    for step in run.steps:
        groups = sessions_of(step)
        assert len(groups) == 6
        for sessions in groups.values():
            assert len(sessions) == 6
            rewards = [rows[-1]["reward"] for rows in sessions.values()]
            graded += len(set(rewards)) > 1
            for rows, expected in zip(
                sessions.values(), reference_advantages(rewards), strict=True
            ):
                lengths.add(len(rows))
                for row in rows:
                    assert row["advantage"] == [pytest.approx(expected, abs=1e-5)]
    assert lengths == {1, 2}
    assert graded > 0  # of twelve groups of six, of which hardly one agrees


def test_the_log_has_the_metrics_of_the_real_groups(run: Run):
    assert len(run.trained) == len(run.steps) == 2
    for data, step in zip(run.trained, run.steps, strict=True):
        groups = sessions_of(step)
        rewards = [[rows[-1]["reward"] for rows in group.values()] for group in groups.values()]
        varied = [group for group in rewards if len(set(group)) > 1]
        sizes = [statistics.fmean(map(abs, reference_advantages(group))) for group in varied]
        assert data["ms_grpo/groups"] == 6
        assert data["ms_grpo/homogeneous_share"] == pytest.approx(1 - len(varied) / 6)
        assert data["ms_grpo/adv_abs_mean"] == pytest.approx(statistics.fmean(sizes), abs=1e-5)
        assert data["ms_grpo/distinct_rewards"] == pytest.approx(
            statistics.fmean(len(set(group)) for group in varied)
        )
        assert data["ms_grpo/subgroups"] == 2**6 - 1 - 6
