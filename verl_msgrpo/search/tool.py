"""verl's search tool: a query list in, passages as text out."""

import asyncio
import logging

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.utils.rollout_trace import rollout_trace_op

from verl_msgrpo.search.calls import CallError, read_queries
from verl_msgrpo.search.client import client_for, probe
from verl_msgrpo.search.metrics import SearchCounts, count_searches, counts_of
from verl_msgrpo.search.observation import ByteMeasure, Measure, TokenMeasure, render
from verl_msgrpo.search.settings import SearchSettings, read_settings

logger = logging.getLogger(__name__)

SCHEMA = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches a text corpus and returns the best passages for each query.",
        "parameters": {
            "type": "object",
            "properties": {
                "query_list": {
                    "type": "array",
                    "description": "Search queries, each a string that is understood on its own.",
                }
            },
            "required": ["query_list"],
        },
    },
}


class Searcher:
    """Answers calls of the tool; what `SearchTool` and the function tool have in common."""

    def __init__(self, settings: SearchSettings) -> None:
        self.settings = settings
        self._measure: Measure = ByteMeasure()
        self._tokenizer: object = None

    def use_tokenizer(self, tokenizer: object) -> None:
        """Counts the observation's budget in this tokenizer's tokens from now on."""
        if tokenizer is not self._tokenizer:
            self._tokenizer, self._measure = tokenizer, TokenMeasure(tokenizer)

    async def answer(self, arguments: object, extra_fields: dict[str, object]) -> str:
        """The observation for one call; its searches are counted in `extra_fields`.

        Nothing raises into a rollout: a failure is a short text for the model and a count.
        """
        counts = counts_of(extra_fields)
        try:
            return await self._answer(arguments, counts)
        except CallError as error:
            counts["malformed"] += 1
            return f"Search error: {error}."
        except Exception as error:
            logger.warning("a search failed: %r", error)
            counts["failed"] += 1
            return f"Search error: internal error ({type(error).__name__})."

    async def _answer(self, arguments: object, counts: SearchCounts) -> str:
        queries = read_queries(arguments)
        results = await client_for(self.settings.client).search(queries)
        count_searches(counts, queries, results)
        errors = [result.error for result in results if result.error is not None]
        if len(errors) == len(results):
            return f"Search error: {errors[0]}."
        passages = [
            f"Search error: {result.error}." if result.error else result.passages
            for result in results
        ]
        # Tokenizers release the GIL; the event loop goes on with other rollouts.
        return await asyncio.to_thread(
            render, passages, self.settings.max_observation_tokens, self._measure
        )


class SearchTool(BaseTool):
    """Drop-in for verl's removed SearchTool; docs/search.md has its configuration.

    Raises UserError when it is made with a configuration that cannot work or a server that is not
    there, and nothing into a rollout.
    """

    def __init__(
        self, config: dict[str, object], tool_schema: OpenAIFunctionToolSchema | None = None
    ) -> None:
        settings = read_settings(config)
        if settings.probe:
            probe(settings.client)
        self.searcher = Searcher(settings)
        super().__init__(config, tool_schema)

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        """The schema that is used where the configuration has none."""
        return OpenAIFunctionToolSchema.model_validate(SCHEMA)

    @rollout_trace_op
    async def execute(
        self, instance_id: str, parameters: object, **kwargs: object
    ) -> tuple[ToolResponse, float, dict[str, object]]:
        """Runs the queries in `parameters` (a dict, a list or one string).

        `agent_data`, which verl's tool loop passes, gets the counts in its `extra_fields`. Returns
        the observation, a reward of 0, and no metrics of its own: verl's loop drops them.
        """
        call: dict[str, object] = {}
        rollout = getattr(kwargs.get("agent_data"), "extra_fields", call)
        text = await self.searcher.answer(parameters, rollout)
        return ToolResponse(text=text), 0.0, {}
