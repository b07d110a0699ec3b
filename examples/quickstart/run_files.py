"""What a run leaves in its folder, as its console, its summary and the comparison read it.

`metrics.jsonl` is verl's file logger's, `rollouts/STEP.jsonl` the dumps of
`trainer.rollout_data_dir`.
"""

from pathlib import Path

from verl_msgrpo.common.json_lines import objects_of
from verl_msgrpo.common.numbers import finite
from verl_msgrpo.common.row_keys import row_key
from verl_msgrpo.errors import UserError

METRICS, ROLLOUTS = "metrics.jsonl", "rollouts"

SEARCH, NO_SEARCH = "quickstart/search", "quickstart/no_search"  # data sources of the questions
HELD_OUT = f"val-core/{SEARCH}/acc/mean@1"
HELD_OUT_FROM_MEMORY = f"val-core/{NO_SEARCH}/acc/mean@1"
REWARD, TURNS = "critic/score/mean", "num_turns/mean"
_FULL_SCORE = 0.999


def searches(turns: float) -> float:
    """Searches of a rollout: verl counts the question, every observation and every turn."""
    return max(0.0, (turns - 2) / 2)


def dump_of(run_dir: Path, step: int) -> Path:
    return run_dir / ROLLOUTS / f"{step}.jsonl"


def rewards_by_group(dump: Path) -> dict[str, list[float]]:
    """The rewards of each group in a dump of verl's rollouts; a group is a uid.

    Raises:
        UserError: the file is not such a dump.
    """
    groups: dict[str, list[float]] = {}
    for number, row in objects_of(dump):
        key, score = row_key(row.get("uid")), finite(row.get("score"))
        if key is None or score is None:
            raise UserError(f"{dump}, line {number}: not a rollout of verl's, with uid and score")
        groups.setdefault(key.uid, []).append(score)
    return groups


def training_accuracy(dump: Path) -> float | None:
    """Share of a step's rollouts with the full score; None if verl has not dumped them yet."""
    try:
        rewards = [reward for group in rewards_by_group(dump).values() for reward in group]
    except UserError:
        return None
    return sum(reward > _FULL_SCORE for reward in rewards) / len(rewards) if rewards else None
