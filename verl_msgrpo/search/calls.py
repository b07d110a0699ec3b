"""The calls that a model wrote, however broken: those of a turn, and the queries in one of them.

verl's parsers drop a broken call without a word; here each gets a reason that the model can read.
"""

import json
import logging
from collections.abc import Mapping, Sequence

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema

from verl_msgrpo.common.json_lines import parsed
from verl_msgrpo.common.text import encodable

logger = logging.getLogger(__name__)

MAX_QUERIES = 8
MAX_QUERY_CHARS = 1000
BROKEN = "broken_call"


class CallError(ValueError):
    """A call without a usable query; the message is meant for the model."""


def read_queries(arguments: object) -> list[str]:
    """The queries, in the order in which they were written, without surrounding white space.

    `arguments` may be `{"query_list": [...]}`, `{"query": ...}`, or the bare value. One string is
    one query. Raises CallError where there is no query, too many, or something that is not text.
    """
    value = arguments
    if isinstance(arguments, Mapping):
        if not arguments.keys() & {"query_list", "query"}:
            raise CallError('the arguments need "query_list", a list of search queries')
        value = arguments.get("query_list") or arguments.get("query")
    items = value if isinstance(value, list) else [value]
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) + items.count(None) < len(items):
        raise CallError('"query_list" must be a list of strings')
    queries = [query for text in texts if (query := encodable(text).strip())]
    if not queries:
        raise CallError("the call holds no query")
    if len(queries) > MAX_QUERIES:
        raise CallError(f"{len(queries)} queries in one call, at most {MAX_QUERIES} are allowed")
    if max(map(len, queries)) > MAX_QUERY_CHARS:
        raise CallError(f"a query is longer than {MAX_QUERY_CHARS} characters")
    return queries


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


def end_of_calls(text: str, start: str, end: str, limit: int) -> int | None:
    """The position after the first call in `text`, or after the last of up to `limit` in a row.

    Calls are in a row when only white space is between them. None where no call ends.
    """
    position = text.find(end)
    if position < 0:
        return None
    position += len(end)
    for _ in range(limit - 1):
        following = len(text) - len(text[position:].lstrip())
        close = text.find(end, following)
        if not text.startswith(start, following) or close < 0:
            break
        position = close + len(end)
    return position


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
    _, problem = parsed(call.arguments)
    return call if problem is None else BrokenCall(reason="the arguments are not valid JSON")
