"""The search half of agentic RL: a search tool, two agent loops, and a retrieval server.

A rollout, in the order in which it is read: `search_tool_agent` and `search_r1_agent` are the agent
loops that verl runs, made of what generation.py holds; calls.py reads what the model wrote; tool.py
is the tool, configured by settings.py, which asks through client.py and shows the passages as
observation.py writes them; metrics.py counts. function_tool.py is the same tool as a file for verl.
The server is in server/, its commands are in commands/.

`SearchTool` is imported when it is first used: it needs verl.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verl_msgrpo.search.tool import SearchTool

__all__ = ["SearchTool"]


def __getattr__(name: str) -> object:
    if name != "SearchTool":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from verl_msgrpo.search.tool import SearchTool

    return SearchTool


def register_agent_loops() -> None:
    """Makes `search_tool_agent` and `search_r1_agent` known to verl, which it imports."""
    from verl.experimental.agent_loop.agent_loop import register

    from verl_msgrpo.search.search_r1_agent import SearchR1AgentLoop
    from verl_msgrpo.search.search_tool_agent import SearchToolAgentLoop

    register("search_tool_agent")(SearchToolAgentLoop)
    register("search_r1_agent")(SearchR1AgentLoop)
