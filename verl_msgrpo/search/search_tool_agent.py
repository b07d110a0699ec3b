"""`search_tool_agent`: verl's tool loop, made safe for training with search."""

import json
import logging
import weakref
from collections.abc import Sequence

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.tool_agent_loop import AgentData, AgentState, ToolAgentLoop
from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.tools.schemas import ToolResponse
from verl.utils.tokenizer.continuous_token import MergeResult

from verl_msgrpo.common.text import encodable
from verl_msgrpo.search.calls import BrokenCall, CallParser, end_of_calls
from verl_msgrpo.search.generation import (
    BoundedGeneration,
    DeadlinePassedError,
    LLMClient,
    Stops,
    completed,
    missing_tail,
    template_tail,
    tokens_until,
    within,
)
from verl_msgrpo.search.metrics import FINISHED, TRUNCATED, TURN_LIMIT, counts_of
from verl_msgrpo.search.observation import harmless
from verl_msgrpo.search.tool import SearchTool

logger = logging.getLogger(__name__)

MAX_NAME_CHARS = 64
# Opened by the chat template only: a model that writes it invents the answer to its own call.
_INVENTED = "<tool_response>"
# tokenizer -> what its template puts after an assistant's text; a loop is made for every rollout.
_TAILS: weakref.WeakKeyDictionary[object, list[int]] = weakref.WeakKeyDictionary()


class SearchToolAgentLoop(ToolAgentLoop):
    """verl's `tool_agent`, with an end to every turn, every call and every rollout.

    A turn ends with its calls (the first one, or up to `max_parallel_calls` in a row); what the
    model writes after them is discarded. A call that is broken or names no tool gets an observation
    that says so. Every rollout ends within `rollout_timeout` seconds, every tool call within
    `tool_timeout`. With `max_assistant_turns` = N the model has N turns, and the call in the last
    one is not run. `extra_fields` says why the rollout ended, see `metrics.py`.
    """

    server_manager: LLMClient
    tool_parser: ToolParser | CallParser

    def __init__(
        self,
        *args: object,
        rollout_timeout: float = 3600.0,
        tool_timeout: float = 120.0,
        **kwargs: object,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._rollout_timeout = rollout_timeout
        self._tool_timeout = tool_timeout
        self._llm_client: LLMClient = self.server_manager
        parser = CallParser(self.tool_parser, self.tokenizer)
        self.tool_parser = self._parser = parser
        last = parser.end if self.max_parallel_calls == 1 else _INVENTED
        self._stops = Stops.at([last] if parser.end and last else [], self.tokenizer)
        # A format with stops of its own has a token builder that completes its turns.
        complete = parser.end and not parser.stop_token_ids
        self._tail = self._template_tail() if complete else []
        self._ended = FINISHED
        for tool in self.tools.values():
            if isinstance(tool, SearchTool):
                tool.searcher.use_tokenizer(self.tokenizer)

    async def run(self, sampling_params: dict[str, object], **kwargs: object) -> AgentLoopOutput:
        """One rollout. Raises what the LLM client or the chat template raises, nothing else."""
        self.server_manager = self._generation = BoundedGeneration(
            self._llm_client,
            engine=self.rollout_config.name,
            stops=self._stops,
            keep=self._tokens_to_keep,
            response_length=self.response_length,
            max_model_len=self.rollout_config.get("max_model_len"),
            seconds=self._rollout_timeout,
        )
        output = await super().run(sampling_params, **kwargs)
        return completed(
            output,
            ended=self._generation.ended or self._ended,
            filler_id=self.tokenizer.eos_token_id,
            log_probs=bool(sampling_params.get("logprobs")),
            row=kwargs,
        )

    async def ct_merge_context_msg(
        self,
        previous_messages: list[dict],
        updated_messages: list[dict],
        runtime_token_ids: list[int],
        response_mask: list[int],
        response_logprobs: list[float] | None = None,
        tools: list[dict] | None = None,
    ) -> tuple[MergeResult, list[int], list[float] | None]:
        """verl's, after the turn has been completed as the chat template does it (mask 0)."""
        tail = missing_tail(runtime_token_ids, self._tail)
        return await super().ct_merge_context_msg(
            previous_messages,
            updated_messages,
            [*runtime_token_ids, *tail],
            [*response_mask, *([0] * len(tail))],
            None if response_logprobs is None else [*response_logprobs, *([0.0] * len(tail))],
            tools=tools,
        )

    async def _handle_generating_state(
        self,
        agent_data: AgentData,
        sampling_params: dict[str, object],
        ignore_termination: bool = False,
    ) -> AgentState:
        state = await super()._handle_generating_state(
            agent_data, sampling_params, ignore_termination
        )
        if self._generation.ended:
            agent_data.assistant_turns -= 1  # verl has counted a turn that was not generated
        elif state == AgentState.TERMINATED:
            if self._generation.filled and agent_data.response_ids[-1:] != [
                self.tokenizer.eos_token_id
            ]:
                self._ended = TRUNCATED
            else:
                _, calls = await self._parser.extract_tool_calls(agent_data.response_ids)
                self._ended = TURN_LIMIT if calls else FINISHED
        return state

    async def _handle_processing_tools_state(self, agent_data: AgentData) -> AgentState:
        state = await super()._handle_processing_tools_state(agent_data)
        if state == AgentState.TERMINATED:  # the observation does not fit
            self._ended = TRUNCATED
        return state

    async def _call_tool(
        self, tool_call: FunctionCall, tools_kwargs: dict[str, dict], agent_data: AgentData
    ) -> tuple[ToolResponse, float, dict]:
        tools = agent_data._active_tools
        counts = counts_of(agent_data.extra_fields)
        if isinstance(tool_call, BrokenCall):
            counts["malformed"] += 1
            return _says(f"Tool call error: {tool_call.reason}.")
        if tool_call.name not in tools:
            counts["malformed"] += 1
            name = harmless(tool_call.name[:MAX_NAME_CHARS])
            return _says(f"There is no tool {name!r}. Tools: {', '.join(tools)}.")
        if isinstance(tools[tool_call.name], SearchTool):
            kwargs = tools_kwargs.get(tool_call.name, {}).get("create_kwargs", {})
            call = _search(tools[tool_call.name], kwargs, tool_call, agent_data)
        else:
            call = super()._call_tool(tool_call, tools_kwargs, agent_data)
        seconds = min(self._tool_timeout, self._generation.seconds_left())
        try:
            response, reward, metrics = await within(seconds, call)
        except DeadlinePassedError:
            return _says(f"Tool error: {tool_call.name} gave no answer in time.")
        except Exception as error:
            return _says(f"Tool error: {tool_call.name} failed ({type(error).__name__}).")
        if response.text is not None:
            # An exception's text may quote the arguments, which the model wrote.
            failed = response.text.startswith(f"Error executing tool '{tool_call.name}'")  # verl's
            response.text = (harmless if failed else encodable)(response.text)
        return response, reward, metrics

    def _tokens_to_keep(self, ids: Sequence[int]) -> int:
        if not (self._parser.start and self._parser.end):
            return len(ids)
        text = self.tokenizer.decode(ids)
        end = end_of_calls(text, self._parser.start, self._parser.end, self.max_parallel_calls)
        if end is None or not text[end:].replace(self.tokenizer.eos_token, "").strip():
            return len(ids)
        return tokens_until(end, ids, self.tokenizer.decode)

    def _template_tail(self) -> list[int]:
        if self.tokenizer not in _TAILS:
            try:
                _TAILS[self.tokenizer] = template_tail(
                    lambda text: self.continuous_token_builder.render_delta_token_id(
                        [{"role": "user", "content": "."}], [{"role": "assistant", "content": text}]
                    )
                )
            except Exception as error:
                logger.warning(
                    "turns are left as the model ends them: no template tail (%s)", error
                )
                _TAILS[self.tokenizer] = []
        return _TAILS[self.tokenizer]


def _says(text: str) -> tuple[ToolResponse, float, dict]:
    return ToolResponse(text=text), 0.0, {}


async def _search(
    tool: SearchTool, create_kwargs: dict, tool_call: FunctionCall, agent_data: AgentData
) -> tuple[ToolResponse, float, dict]:
    """verl's call without its cut in characters: the text fits a budget in tokens already."""
    instance_id, _ = await tool.create(create_kwargs=create_kwargs)
    try:
        arguments = json.loads(tool_call.arguments)
        return await tool.execute(instance_id, arguments, agent_data=agent_data)
    finally:
        await tool.release(instance_id)
