"""An agent loop whose sessions have one or two rows, for test_sessions.py."""

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_msgrpo.search.search_tool_agent import SearchToolAgentLoop


class TwoRowsAgentLoop(SearchToolAgentLoop):
    """The first turn once more as a row of its own, where there is more than one turn."""

    async def run(self, sampling_params: dict, **kwargs) -> list[AgentLoopOutput]:
        whole = await super().run(sampling_params, **kwargs)
        if 0 not in whole.response_mask:
            return [whole]
        end = whole.response_mask.index(0)
        first = whole.model_copy(
            update={
                "response_ids": whole.response_ids[:end],
                "response_mask": whole.response_mask[:end],
                "response_logprobs": whole.response_logprobs and whole.response_logprobs[:end],
                "extra_fields": dict(whole.extra_fields),
            }
        )
        return [first, whole]
