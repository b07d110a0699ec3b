"""`search_r1_agent`: Search-R1's text protocol, for base models without a template for tools.

The model writes `<search> query </search>`, reads `<information> ... </information>`, and ends with
`<answer> ... </answer>`, all within one turn of the chat template.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, ToolListWrap
from verl.utils.profiler import simple_timer
from verl.workers.rollout.replica import TokenOutput

from verl_msgrpo.common.numbers import not_allowed
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.generation import (
    BoundedGeneration,
    DeadlinePassedError,
    Stops,
    completed,
    tokens_until,
    within,
)
from verl_msgrpo.search.metrics import DEADLINE, FINISHED, TRUNCATED, TURN_LIMIT, counts_of
from verl_msgrpo.search.tool import SearchTool

_TAG_NAME = re.compile(r"[\w.:-]+")


class SearchR1AgentLoop(AgentLoopBase):
    """Search-R1's protocol over a `SearchTool` from `rollout.multi_turn.tool_config_path`.

    Generation stops after `</search>` and `</answer>`; what an engine returns beyond is discarded.
    A search that is empty, never closed or never opened is answered by a line that says so.
    `max_assistant_turns` = N gives the model N turns, and the search in the last one is not run.
    `extra_fields` holds the counts and why the rollout ended, see `metrics.py`.
    """

    def __init__(
        self,
        *args: object,
        tools: ToolListWrap | None = None,
        rollout_timeout: float = 3600.0,
        search_tag: str = "search",
        information_tag: str = "information",
        answer_tag: str = "answer",
        **kwargs: object,
    ) -> None:
        """The tags are names without brackets. Raises UserError for a tag or a tool that is not."""
        super().__init__(*args, **kwargs)
        tags = {
            "search_tag": search_tag,
            "information_tag": information_tag,
            "answer_tag": answer_tag,
        }
        for name, tag in tags.items():
            if not _TAG_NAME.fullmatch(tag):
                wrong = not_allowed(name, "the name of a tag, without brackets", tag)
                raise UserError(f"search_r1_agent: {wrong}")
        found = [tool for tool in (tools.tools if tools else []) if isinstance(tool, SearchTool)]
        if len(found) != 1:
            raise UserError(
                f"search_r1_agent: {len(found)} SearchTools, one is needed; set "
                "actor_rollout_ref.rollout.multi_turn.tool_config_path"
            )
        self._searcher = found[0].searcher
        self._searcher.use_tokenizer(self.tokenizer)
        self._llm_client = self.server_manager
        self._rollout_timeout = rollout_timeout
        self._response_length = self.rollout_config.response_length
        self._max_turns = self.rollout_config.multi_turn.max_assistant_turns
        self._opens, self._closes = f"<{search_tag}>", f"</{search_tag}>"
        self._answer_closes = f"</{answer_tag}>"
        self._information = f"\n\n<{information_tag}>{{}}</{information_tag}>\n\n"
        self._stops = Stops.at([self._closes, self._answer_closes], self.tokenizer)

    async def run(
        self, sampling_params: dict[str, object], priority: int = 0, **kwargs: object
    ) -> AgentLoopOutput:
        """One rollout. Raises what the LLM client or the chat template raises, nothing else."""
        generation = BoundedGeneration(
            self._llm_client,
            engine=self.rollout_config.name,
            stops=self._stops,
            keep=self._tokens_to_keep,
            response_length=self._response_length,
            max_model_len=self.rollout_config.get("max_model_len"),
            seconds=self._rollout_timeout,
        )
        deterministic = self.rollout_config.full_determinism
        request_id = f"det-{priority}" if deterministic else uuid4().hex
        prompt_ids = await self._build_prompt(list(kwargs["raw_prompt"]))  # type: ignore[call-overload]
        rollout = _Rollout()
        ended = None
        while ended is None:
            with simple_timer("generate_sequences", rollout.timings):
                turn = await generation.generate(
                    request_id, prompt_ids=prompt_ids + rollout.ids, sampling_params=sampling_params
                )
            if generation.ended:
                ended = generation.ended
                break
            rollout.write(turn)
            query = self._query(self.tokenizer.decode(turn.token_ids))
            ended = self._end(rollout, query, generation.filled)
            if ended is None:
                with simple_timer("tool_calls", rollout.timings):
                    ended = await self._observe(rollout, str(query), generation.seconds_left())
        output = AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=rollout.ids,
            response_mask=rollout.mask,
            response_logprobs=rollout.complete_log_probs(),
            routed_experts=rollout.routed_experts,
            num_turns=rollout.observations + rollout.turns + 1,  # as verl counts
            metrics={**rollout.timings, "num_preempted": rollout.preempted},
            extra_fields=rollout.fields,
        )
        return completed(
            output,
            ended=ended,
            filler_id=self.tokenizer.eos_token_id,
            log_probs=bool(sampling_params.get("logprobs")),
            row=kwargs,
        )

    def _end(self, rollout: "_Rollout", query: str | None, filled: bool) -> str | None:
        """Why the rollout ends after the turn with this query; None if it goes on."""
        if filled:
            whole = query is None and rollout.ids[-1] == self.tokenizer.eos_token_id
            return FINISHED if whole else TRUNCATED
        if query is None:
            return FINISHED
        return TURN_LIMIT if self._max_turns and rollout.turns >= self._max_turns else None

    async def _observe(self, rollout: "_Rollout", query: str, seconds: float) -> str | None:
        """Adds what the query brings; the reason, where the rollout ends instead."""
        if query:
            try:
                text = await within(seconds, self._searcher.answer(query, rollout.fields))
            except DeadlinePassedError:
                return DEADLINE
        else:
            counts_of(rollout.fields)["malformed"] += 1
            text = "Search error: a search is one query between an opening and a closing tag."
        observation = self._encode(self._information.format(text))
        if len(rollout.ids) + len(observation) >= self._response_length:
            return TRUNCATED
        rollout.read(observation)
        return None

    def _query(self, text: str) -> str | None:
        """What a turn searches for: "" where that cannot be told, None where it does not search."""
        if self._closes in text:
            _, opened, query = text.partition(self._closes)[0].rpartition(self._opens)
            return query.strip() if opened else ""
        return "" if self._opens in text and self._answer_closes not in text else None

    def _tokens_to_keep(self, ids: Sequence[int]) -> int:
        text = self.tokenizer.decode(ids)
        ends = [
            (text.index(tag) + len(tag), tag)
            for tag in (self._closes, self._answer_closes)
            if tag in text
        ]
        if not ends:
            return len(ids)
        end, tag = min(ends)
        if tag == self._answer_closes and text[end:] == self.tokenizer.eos_token:
            return len(ids)
        return tokens_until(end, ids, self.tokenizer.decode)

    async def _build_prompt(self, messages: list[dict[str, str]]) -> list[int]:
        if self.tokenizer.chat_template is not None:
            return await self.ct_build_initial_tokens(messages)
        text = "\n".join(str(message["content"]) for message in messages)
        return self._cap_text_prompt_length(self._encode(text))

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)


@dataclass
class _Rollout:
    """The response so far: ids, mask and log-probs of equal length, and what it took."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    turns: int = 0
    observations: int = 0
    preempted: int = -1
    routed_experts: object = None
    timings: dict[str, float] = field(default_factory=dict)
    fields: dict[str, object] = field(default_factory=dict)

    def write(self, turn: TokenOutput) -> None:
        """Adds a turn of the model."""
        self.turns += 1
        self.ids += turn.token_ids
        self.mask += [1] * len(turn.token_ids)
        self.log_probs += turn.log_probs or []
        if turn.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + turn.num_preempted
        if turn.routed_experts is not None:
            self.routed_experts = turn.routed_experts
        if not self.fields:
            self.fields.update(turn.extra_fields)
        elif turn.extra_fields.get("max_global_steps") is not None:
            self.fields["max_global_steps"] = turn.extra_fields["max_global_steps"]

    def read(self, observation: list[int]) -> None:
        """Adds tokens that the model did not write."""
        self.observations += 1
        self.ids += observation
        self.mask += [0] * len(observation)
        self.log_probs += [0.0] * len(observation)

    def complete_log_probs(self) -> list[float] | None:
        """The log-probs, if the engine gave any."""
        return self.log_probs if len(self.log_probs) == len(self.ids) else None
