"""Questions to be answered by searching: HotpotQA, and Search-R1's mix of it with NQ."""

import json

from verl_msgrpo.tasks.fields import Example, note, text, texts
from verl_msgrpo.tasks.rows import Problem


def from_hotpotqa(example: Example) -> Problem:
    """HotpotQA's rows: question, answer, id, type, level. The contexts belong into an index."""
    return Problem(
        text=text(example, "question"),
        ground_truth=text(example, "answer"),
        id=note(example, "id", "_id"),
        kind=note(example, "type"),
        difficulty=note(example, "level"),
    )


def from_search_r1(example: Example) -> Problem:
    """Search-R1's rows: question, golden_answers, id, data_source (nq or hotpotqa)."""
    return Problem(
        text=text(example, "question"),
        ground_truth=accepted(texts(example.get("golden_answers"), "golden_answers")),
        id=note(example, "id"),
        origin=note(example, "data_source"),
    )


def accepted(answers: list[str]) -> str:
    """One answer as it is; several as the JSON of Search-R1's {"target": [...]}."""
    distinct = list(dict.fromkeys(answers))
    return distinct[0] if len(distinct) == 1 else json.dumps({"target": distinct})
