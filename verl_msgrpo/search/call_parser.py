"""Tool calls out of a turn, with the broken ones, which verl's parsers drop without a word."""

import json
import logging
from collections.abc import Sequence

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema

logger = logging.getLogger(__name__)

BROKEN = "broken_call"


class BrokenCall(FunctionCall):
    """A call that cannot be run."""

    name: str = BROKEN
    arguments: str = "{}"
    reason: str
    """What is wrong, for the model."""


class CallParser:
    """Stands before one of verl's parsers and adds a BrokenCall for each call that it cannot read.

    Calls are told apart by the tags that the parser names (hermes, qwen3_coder, glm, seed, minimax,
    gemma4). With a parser that names none, only calls whose arguments are no JSON count as broken.
    """

    def __init__(self, parser: ToolParser, tokenizer: object) -> None:
        self._parser = parser
        self._tokenizer = tokenizer
        self.start: str | None = getattr(parser, "tool_call_start_token", None)
        self.end: str | None = getattr(parser, "tool_call_end_token", None)

    @property
    def stop_token_ids(self) -> list[int]:
        """Those of verl's parser."""
        return self._parser.stop_token_ids

    async def extract_tool_calls(
        self, responses_ids: Sequence[int], tools: list[OpenAIFunctionToolSchema] | None = None
    ) -> tuple[str, list[FunctionCall]]:
        """The text beside the calls, and the calls in the order in which they were written."""
        content, calls = await self._parse(list(responses_ids), tools)
        if self.start and self.end:
            text = self._tokenizer.decode(responses_ids)  # type: ignore[attr-defined]
            written = split_calls(text, self.start, self.end)
            if len(calls) != len(written):
                calls = [call for one in written for call in await self._parse_one(one, tools)]
        return content, [_checked(call) for call in calls]

    async def _parse(
        self, ids: list[int], tools: list[OpenAIFunctionToolSchema] | None
    ) -> tuple[str, list[FunctionCall]]:
        try:
            return await self._parser.extract_tool_calls(ids, tools)
        except Exception as error:
            logger.warning("%s failed: %r", type(self._parser).__name__, error)
            return "", []

    async def _parse_one(
        self, written: str, tools: list[OpenAIFunctionToolSchema] | None
    ) -> list[FunctionCall]:
        ids = self._tokenizer.encode(written, add_special_tokens=False)  # type: ignore[attr-defined]
        _, calls = await self._parse(ids, tools)
        return calls or [BrokenCall(reason=_why(written, str(self.start), str(self.end)))]


def split_calls(text: str, start: str, end: str) -> list[str]:
    """The calls in `text` with their tags, those that miss one of the two included."""
    calls: list[str] = []
    position = 0
    while True:
        opened, closed = text.find(start, position), text.find(end, position)
        if closed < 0:
            return [*calls, text[opened:]] if opened >= 0 else calls
        begin = opened if 0 <= opened < closed else closed
        position = closed + len(end)
        calls.append(text[begin:position])


def _why(written: str, start: str, end: str) -> str:
    if not written.startswith(start):
        return "a call is closed that was never opened"
    if not written.endswith(end):
        return "the call is never closed"
    body = written.removeprefix(start).removesuffix(end).strip()
    if not body.startswith("{"):
        return "the call does not have the format of a call"
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        return f"the call is not valid JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError):
        return "the call is not valid JSON"
    return 'the call needs "name" and "arguments"'


def _checked(call: FunctionCall) -> FunctionCall:
    try:
        json.loads(call.arguments)
    except (ValueError, RecursionError):
        return BrokenCall(reason="the arguments are not valid JSON")
    return call
