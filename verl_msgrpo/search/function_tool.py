"""The search tool as an `@function_tool` file, for rollout.multi_turn.function_tool_path.

verl runs this file by its path; do not import it as a module as well. It is configured through the
environment: RETRIEVAL_SERVICE_URL, RETRIEVAL_TOPK and RETRIEVAL_MAX_BYTES (UTF-8 bytes of an
observation). verl passes no rollout to function tools, so its searches appear in no metric: prefer
the `SearchTool` class.
"""

import os

from verl.tools.function_tool import function_tool

from verl_msgrpo.common.numbers import not_allowed
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.client import probe
from verl_msgrpo.search.settings import read_settings
from verl_msgrpo.search.tool import SCHEMA, Searcher


def _integer(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise UserError(str(not_allowed(name, "an integer", text))) from None


_settings = read_settings(
    {
        "retrieval_service_url": os.environ.get(
            "RETRIEVAL_SERVICE_URL", "http://127.0.0.1:8000/retrieve"
        ),
        "topk": _integer("RETRIEVAL_TOPK", 3),
        "max_observation_tokens": _integer("RETRIEVAL_MAX_BYTES", 2048),
    }
)
probe(_settings.client)
_searcher = Searcher(_settings)


@function_tool("search", schema=SCHEMA)
async def search(**arguments: object) -> str:
    """Runs the queries of one call and returns the passages as text."""
    return await _searcher.answer(arguments, {})
