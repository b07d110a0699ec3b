"""Makes the search agent loops known to verl."""


def register_agent_loops() -> None:
    """Registers `search_tool_agent` and `search_r1_agent`; imports verl."""
    from verl.experimental.agent_loop.agent_loop import register

    from verl_msgrpo.search.search_r1_agent import SearchR1AgentLoop
    from verl_msgrpo.search.search_tool_agent import SearchToolAgentLoop

    register("search_tool_agent")(SearchToolAgentLoop)
    register("search_r1_agent")(SearchR1AgentLoop)
