"""The `search` tool for verl's tool agent loop: BM25 over the quickstart's corpus, in process.

verl loads this file through `actor_rollout_ref.rollout.multi_turn.function_tool_path`;
QUICKSTART_CORPUS must name the corpus file.
"""

import os
import sys
from functools import lru_cache
from pathlib import Path

from verl.tools.function_tool import function_tool

sys.path.insert(0, str(Path(__file__).parent))  # verl loads this file by path, not its folder

from retrieval import Searcher, observation

MAX_QUERIES = 2
MAX_QUERY_CHARS = 200


@lru_cache(maxsize=1)
def _searcher() -> Searcher:
    return Searcher.from_jsonl(Path(os.environ["QUICKSTART_CORPUS"]))


@function_tool
def search(query_list: list[str]) -> str:
    """Search the knowledge base.

    Args:
        query_list: What to look up.
    """
    queries = [query_list] if isinstance(query_list, str) else query_list
    if not isinstance(queries, list) or not queries:
        return "Error: query_list must be a list of strings."
    texts = [str(query)[:MAX_QUERY_CHARS] for query in queries[:MAX_QUERIES]]
    return "".join(observation(results) for results in _searcher().search(texts))
