"""What both search agent loops hand back to verl."""

from collections.abc import Mapping

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_msgrpo.search.metrics import ENDED, counts_of


def completed(
    output: AgentLoopOutput,
    *,
    ended: str,
    filler_id: int,
    log_probs: bool,
    row: Mapping[str, object],
) -> AgentLoopOutput:
    """Adds the rollout's counts and the reason of its end, and fills in an empty response.

    verl cannot carry a response without a token: one that has none, because the deadline passed in
    its first turn, becomes one `filler_id` with mask 0. `row` is what verl passed to the loop.
    """
    counts_of(output.extra_fields)
    output.extra_fields[ENDED] = ended
    if not output.response_mask:
        output.response_ids = [filler_id]
        output.response_mask = [0]
        output.response_logprobs = [0.0] if log_probs else None
    # The version of the weights comes with the first turn; the trainer needs a number.
    step = row.get("global_steps")
    if output.extra_fields.get("min_global_steps") is None and isinstance(step, int):
        output.extra_fields.update(min_global_steps=step - 1, max_global_steps=step - 1)
    return output
