"""What both agent loops are made of: turns that end in time, and the output that verl gets.

`BoundedGeneration` is the LLM client of one rollout: within its room and deadline, and not beyond
the end of a call. verl's own loops leave all three to the server, which knows neither how much of
the response is used up nor when the rollout has to end. Below it: where a turn ends in tokens, what
the chat template puts after it, and `completed`, with which both loops end.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.workers.rollout.replica import TokenOutput

from verl_msgrpo.search.metrics import DEADLINE, ENDED, TRUNCATED, counts_of

T = TypeVar("T")

_abandoned: set[asyncio.Future[object]] = set()


class DeadlinePassedError(Exception):
    """Something took longer than its rollout may."""


async def within(seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`. Raises DeadlinePassedError after `seconds`, whatever `work` does then.

    Work that ignores its cancellation, or hangs while it cleans up, is left behind.
    """
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(seconds, 0))
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if done:
        return task.result()
    _abandon(task)
    raise DeadlinePassedError


def _abandon(task: asyncio.Future) -> None:
    task.cancel()
    _abandoned.add(task)  # asyncio itself keeps weak references only
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # seen


class LLMClient(Protocol):
    """What verl passes to an agent loop as `server_manager`."""

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: Mapping[str, object],
        **options: object,
    ) -> TokenOutput:
        """One turn of the model."""


@dataclass(frozen=True)
class Stops:
    """Where generation ends, beside the user's own stops and the end of the turn."""

    strings: tuple[str, ...]
    token_ids: tuple[int, ...]

    @classmethod
    def at(cls, strings: Sequence[str], tokenizer: object) -> "Stops":
        """Stops at each string, however it is tokenized.

        A string that is one token stops by its id as well: engines leave special tokens out of the
        text in which they look for stop strings.
        """
        ids = []
        for string in strings:
            encoded = tokenizer.encode(string, add_special_tokens=False)  # type: ignore[attr-defined]
            if len(encoded) == 1:
                ids.append(int(encoded[0]))
        return cls(tuple(strings), tuple(ids))

    def added_to(self, sampling_params: Mapping[str, object], engine: str) -> dict[str, object]:
        """A copy of an engine's sampling params with these stops beside those in it.

        Only vLLM gets strings: verl starts the other engines without a tokenizer.
        """
        params = dict(sampling_params)
        ids = [*(params.get("stop_token_ids") or []), *self.token_ids]  # type: ignore[misc]
        if ids:
            params["stop_token_ids"] = list(dict.fromkeys(ids))
        if self.strings and engine == "vllm":
            given = params.get("stop") or []
            strings = [given] if isinstance(given, str) else list(given)  # type: ignore[call-overload]
            params["stop"] = list(dict.fromkeys([*strings, *self.strings]))
            params["include_stop_str_in_output"] = True
        return params


class BoundedGeneration:
    """Generates the turns of one rollout; its loop has it in the place of `server_manager`."""

    def __init__(
        self,
        client: LLMClient,
        *,
        engine: str,
        stops: Stops,
        keep: Callable[[Sequence[int]], int],
        response_length: int,
        max_model_len: int | None,
        seconds: float,
    ) -> None:
        """Starts the clock.

        engine: `rollout.name`; keep: how many of a turn's tokens count, the others are discarded;
        response_length: tokens of the whole response, observations included; max_model_len: tokens
        of prompt and response, None for no limit; seconds: until the rollout has to end.
        """
        self.ended: str | None = None
        """TRUNCATED or DEADLINE once a turn could not be generated for that reason."""
        self.filled = False
        """Whether the last turn took all the room that there was."""
        self._client = client
        self._engine = engine
        self._stops = stops
        self._keep = keep
        self._response_length = response_length
        self._max_model_len = max_model_len
        self._deadline = time.monotonic() + seconds
        self._prompt_length: int | None = None

    def seconds_left(self) -> float:
        """Until the deadline; negative after it."""
        return self._deadline - time.monotonic()

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: Mapping[str, object],
        **options: object,
    ) -> TokenOutput:
        """The next turn: without a token where there is no room or no time (see `ended`).

        prompt_ids: the rollout's prompt at the first call, prompt and response so far later. Raises
        what the client raises.
        """
        if self._prompt_length is None:
            self._prompt_length = len(prompt_ids)
        room = self._prompt_length + self._response_length - len(prompt_ids)
        if self._max_model_len is not None:
            room = min(room, self._max_model_len - len(prompt_ids))
        if room < 1:
            return self._nothing(TRUNCATED)
        if self.seconds_left() <= 0:
            return self._nothing(DEADLINE)
        params = self._stops.added_to(sampling_params, self._engine)
        limit = params.pop("max_new_tokens", None) or params.get("max_tokens")
        params["max_tokens"] = room if limit is None else min(room, int(str(limit)))
        turn = self._client.generate(
            request_id, prompt_ids=prompt_ids, sampling_params=params, **options
        )
        try:
            output = await within(self.seconds_left(), turn)
        except DeadlinePassedError:
            return self._nothing(DEADLINE)
        kept = min(self._keep(output.token_ids), room)
        if kept < len(output.token_ids):
            output.token_ids = output.token_ids[:kept]
            if output.log_probs:
                output.log_probs = output.log_probs[:kept]
            if output.routed_experts is not None:
                output.routed_experts = output.routed_experts[: len(prompt_ids) + kept]
        self.filled = kept >= room
        return output

    def _nothing(self, ended: str) -> TokenOutput:
        self.ended = ended
        return TokenOutput(token_ids=[], num_preempted=0)


def tokens_until(position: int, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int:
    """How many of `ids` it takes until their text reaches `position` (a character index)."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(decode(ids[:middle])) >= position:
            high = middle
        else:
            low = middle + 1
    return low


def template_tail(render: Callable[[str], Sequence[int]]) -> list[int]:
    """The tokens that a chat template puts after an assistant's text: `<|im_end|>`, newline.

    render: the ids of a conversation that ends with an assistant's message of that text.
    """
    first, second = list(render("0")), list(render("1"))
    length = 0
    while length < min(len(first), len(second)) and first[-1 - length] == second[-1 - length]:
        length += 1
    # Two texts that render alike would make everything the tail.
    return first[len(first) - length :] if length < len(first) else []


def missing_tail(ids: Sequence[int], tail: Sequence[int]) -> list[int]:
    """What of `tail` does not yet stand at the end of `ids`."""
    for present in range(len(tail), 0, -1):
        if list(ids[-present:]) == list(tail[:present]):
            return list(tail[present:])
    return list(tail)


def completed(
    output: AgentLoopOutput,
    *,
    ended: str,
    filler_id: int,
    log_probs: bool,
    row: Mapping[str, object],
) -> AgentLoopOutput:
    """Adds the rollout's counts and the reason of its end, and fills in an empty response.

    verl cannot carry a response without a token: one that has none, because the deadline passed in
    its first turn, becomes one `filler_id` with mask 0. `row` is what verl passed to the loop.
    """
    counts_of(output.extra_fields)
    output.extra_fields[ENDED] = ended
    if not output.response_mask:
        output.response_ids = [filler_id]
        output.response_mask = [0]
        output.response_logprobs = [0.0] if log_probs else None
    # The version of the weights comes with the first turn; the trainer needs a number.
    step = row.get("global_steps")
    if output.extra_fields.get("min_global_steps") is None and isinstance(step, int):
        output.extra_fields.update(min_global_steps=step - 1, max_global_steps=step - 1)
    return output
