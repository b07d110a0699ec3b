"""An agent loop whose sessions have one or two rows, for test_sessions.py."""

import itertools

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_msgrpo.search.search_tool_agent import SearchToolAgentLoop

_numbers = itertools.count()


class TwoRowsAgentLoop(SearchToolAgentLoop):
    """Every other session has its first turn, or half of its only one, as a row of its own."""

    async def run(self, sampling_params: dict, **kwargs) -> list[AgentLoopOutput]:
        whole = await super().run(sampling_params, **kwargs)
        mask = whole.response_mask
        if next(_numbers) % 2:
            return [whole]
        end = mask.index(0) if 0 in mask else (len(mask) + 1) // 2
        first = whole.model_copy(
            update={
                "response_ids": whole.response_ids[:end],
                "response_mask": mask[:end],
                "response_logprobs": whole.response_logprobs and whole.response_logprobs[:end],
                "extra_fields": dict(whole.extra_fields),
            }
        )
        return [first, whole]
