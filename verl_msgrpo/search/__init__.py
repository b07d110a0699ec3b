"""The search half of agentic RL: a retrieval server, a search tool, search agent loops.

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
