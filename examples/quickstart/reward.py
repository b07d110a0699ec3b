"""The reward, in verl's `compute_score` form. Standard library only: verl loads this file by path.

    1.0  the final answer is right
    0.4  it is wrong, but the policy found the bridge: it names the bridge in a search that follows
         another search
    0.1  it is wrong, but well-formed
    0.0  there is no well-formed answer

With `binary` (`+reward.custom_reward_function.reward_kwargs.binary=True`) all but the first are 0.

Only what the policy wrote counts, but verl's `solution_str` also holds the tool's observations.
They are cut out. The answer must stand in the last turn, so that not even a passage that closes its
own tag can give one.
"""

import json
import re
from collections.abc import Mapping

RIGHT, BRIDGE, FORMAT, NOTHING = 1.0, 0.4, 0.1, 0.0
# Bounds on what is looked at: an episode of the quickstart has a few hundred characters.
MAX_CHARS = 20_000
MAX_CALLS = 8
MAX_QUERY_CHARS = 80

_OBSERVATION = re.compile(r"<tool_response>.*?(?:</tool_response>|\Z)", re.DOTALL)
_CALL = re.compile(r"<tool_call>([^<]*)</tool_call>")
_ANSWER = re.compile(r"<answer>([^<>]{1,200})</answer>")


def _words(text: str) -> str:
    """Text for comparison: without case, surrounding and repeated white space."""
    return " ".join(text.casefold().split())


def _queries(call: str) -> list[str]:
    """The queries of one call; nothing if it is malformed or a list of guesses."""
    try:
        query = json.loads(call)["arguments"]["query_list"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    if isinstance(query, list) and len(query) == 1:
        query = query[0]
    return [query] if isinstance(query, str) and len(query) <= MAX_QUERY_CHARS else []


def final_answer(solution: str) -> str:
    """The last answer of the last turn; "" if there is none or the turn searches instead."""
    turn = solution.rpartition("</tool_response>")[2]
    if "<tool_response>" in turn or "<tool_call>" in turn:
        return ""
    answers = _ANSWER.findall(turn)
    return answers[-1].strip() if answers else ""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, object] | None = None,
    binary: bool = False,
    **_: object,
) -> dict[str, float | str]:
    """Score one response.

    `extra_info["bridge"]` names the bridge; with `binary` only the right answer scores. The result
    always has the same keys: `score`, `acc` (1.0 if right), `format_ok`, `found_bridge`,
    `searches`, `pred`.
    """
    solution = solution_str[-MAX_CHARS:] if isinstance(solution_str, str) else ""
    answer = final_answer(solution)
    calls = _CALL.findall(_OBSERVATION.sub("", solution))
    bridge = _words(str((extra_info or {}).get("bridge") or ""))
    found_bridge = bool(bridge) and any(
        f" {bridge} " in f" {_words(query)} "
        for call in calls[1:MAX_CALLS]
        for query in _queries(call)
    )
    right = bool(answer) and _words(answer) == _words(str(ground_truth))
    score = RIGHT if right else BRIDGE if found_bridge else FORMAT if answer else NOTHING
    if binary and not right:
        score = NOTHING
    return {
        "score": score,
        "acc": float(right),
        "format_ok": float(bool(answer)),
        "found_bridge": float(found_bridge),
        "searches": float(len(calls)),
        "pred": answer,
    }
