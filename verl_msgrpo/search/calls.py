"""The queries of one tool call, read from whatever arguments a model wrote."""

from collections.abc import Mapping

MAX_QUERIES = 8
MAX_QUERY_CHARS = 1000


class CallError(ValueError):
    """A call without a usable query; the message is meant for the model."""


def read_queries(arguments: object) -> list[str]:
    """The queries, in the order in which they were written, without surrounding white space.

    `arguments` may be `{"query_list": [...]}`, `{"query": ...}`, or the bare value. One string is
    one query. Raises CallError where there is no query, too many, or something that is no text.
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
    queries = [query for text in texts if (query := well_formed(text).strip())]
    if not queries:
        raise CallError("the call holds no query")
    if len(queries) > MAX_QUERIES:
        raise CallError(f"{len(queries)} queries in one call, at most {MAX_QUERIES} are allowed")
    if max(map(len, queries)) > MAX_QUERY_CHARS:
        raise CallError(f"a query is longer than {MAX_QUERY_CHARS} characters")
    return queries


def well_formed(text: str) -> str:
    """Replaces lone surrogates, which JSON can spell and no tokenizer takes, by "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
