"""Search-R1's retrieval protocol: what a request may hold, and the bytes of the answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, FailFast, Field, StrictInt, ValidationError

from verl_msgrpo.search.server.backends import Hit


class RetrieveRequest(BaseModel):
    """The body of `POST /retrieve`; further keys are ignored."""

    queries: Annotated[list[str], FailFast()]
    topk: StrictInt | None = Field(
        None, description="passages a query; the server's default if absent"
    )
    return_scores: bool = False


class Document(BaseModel):
    """One passage; `contents` is the title, a newline, the text."""

    id: str | int
    contents: str


class ScoredDocument(BaseModel):
    """An item of the answer when `return_scores` is true."""

    document: Document
    score: float


class RetrieveResponse(BaseModel):
    """One list a query, best first, shorter than `topk` where less was found."""

    result: list[list[ScoredDocument] | list[Document]]


class ErrorResponse(BaseModel):
    """The reason for which a request got no answer."""

    detail: str


@dataclass(frozen=True)
class Limits:
    """What one request may ask for; `max_results` bounds queries times topk."""

    default_topk: int = 3
    max_topk: int = 100
    max_queries: int = 4096
    max_results: int = 20_000
    max_query_chars: int = 10_000
    max_body_bytes: int = 8 << 20
    max_answer_bytes: int = 64 << 20


class RequestError(Exception):
    """A request that is not answered: an HTTP status and a reason of one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def parse_request(body: bytes, limits: Limits) -> RetrieveRequest:
    """Reads a request and fills in `topk`.

    Raises RequestError: 400 for a topk below 1, 422 for anything else that is malformed or beyond
    a limit.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(422, "the body is not JSON") from None
    if isinstance(fields, dict) and isinstance(fields.get("queries"), list):
        count = len(fields["queries"])
        if count > limits.max_queries:
            raise RequestError(
                422, f"{count} queries, this server takes {limits.max_queries} a request"
            )
        fields["queries"] = [_well_formed(query) for query in fields["queries"]]
    try:
        request = RetrieveRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise RequestError(422, f"{where}: {first['msg']}") from None
    longest = max(map(len, request.queries), default=0)
    if longest > limits.max_query_chars:
        raise RequestError(
            422, f"a query of {longest} characters, this server takes {limits.max_query_chars}"
        )
    if request.topk is None:
        request.topk = limits.default_topk
    if request.topk < 1:
        raise RequestError(400, "topk must be at least 1")
    if request.topk > limits.max_topk:
        raise RequestError(422, f"topk is above this server's limit of {limits.max_topk}")
    if len(request.queries) * request.topk > limits.max_results:
        raise RequestError(
            422,
            f"{len(request.queries)} queries with a topk of {request.topk}, this server gives "
            f"{limits.max_results} results a request",
        )
    return request


def _well_formed(query: object) -> object:
    """Replaces lone surrogates, which JSON can spell and UTF-8 cannot, by "?"."""
    if isinstance(query, str) and not query.isascii():
        return query.encode("utf-8", "replace").decode()
    return query


class AnswerTooLarge(RequestError):  # noqa: N818
    """The passages that were asked for are more than one answer holds."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            422,
            f"the answer is larger than this server's {max_bytes} bytes; "
            "ask for fewer queries or a smaller topk",
        )


def document_bytes(results: Sequence[Sequence[Hit]]) -> int:
    """Size of all documents of an answer."""
    return sum(len(hit.document) for hits in results for hit in hits)


def dump_response(results: Sequence[Sequence[Hit]], return_scores: bool, max_bytes: int) -> bytes:
    """The answer's body as UTF-8 JSON, put together from documents that are JSON already.

    Raises AnswerTooLarge where the documents have more than `max_bytes`.
    """
    if document_bytes(results) > max_bytes:
        raise AnswerTooLarge(max_bytes)
    lists = []
    for hits in results:
        if return_scores:
            items = [b'{"document":%b,"score":%b}' % (d, repr(s).encode()) for d, s in hits]
        else:
            items = [hit.document for hit in hits]
        lists.append(b"[%b]" % b",".join(items))
    return b'{"result":[%b]}' % b",".join(lists)
