"""What the server says: Search-R1's retrieval protocol, and its counters for Prometheus.

`parse_request` takes a request apart, `dump_response` puts the answer together; a scored document
is written by `dump_hit` and read by `read_hit`, in answers and in recordings alike.
"""

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, FailFast, Field, StrictInt, ValidationError

from verl_msgrpo.common.json_lines import parsed
from verl_msgrpo.common.numbers import finite
from verl_msgrpo.common.text import encodable
from verl_msgrpo.search.server.backends import Hit
from verl_msgrpo.search.server.options import Limits

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


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
    fields, problem = parsed(body)
    if problem is not None:
        raise RequestError(422, "the body is not JSON")
    if isinstance(fields, dict) and isinstance(fields.get("queries"), list):
        count = len(fields["queries"])
        if count > limits.max_queries:
            raise RequestError(
                422, f"{count} queries, this server takes {limits.max_queries} a request"
            )
        fields["queries"] = [
            encodable(query) if isinstance(query, str) else query for query in fields["queries"]
        ]
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
    spelt = dump_hit if return_scores else attrgetter("document")
    lists = [b"[%b]" % b",".join(map(spelt, hits)) for hits in results]
    return b'{"result":[%b]}' % b",".join(lists)


def dump_hit(hit: Hit) -> bytes:
    """A scored document as UTF-8 JSON."""
    return b'{"document":%b,"score":%b}' % (hit.document, repr(hit.score).encode())


def read_hit(item: object) -> Hit:
    """A scored document out of JSON that another server or a recording holds.

    Raises:
        ValueError: it has no contents, or no finite number as score.
    """
    fields = item if isinstance(item, dict) else {}
    document, score = fields.get("document"), finite(fields.get("score"))
    if not isinstance(document, dict) or not isinstance(document.get("contents"), str):
        raise ValueError("a document without contents")
    if score is None:
        raise ValueError("a score that is not a finite number")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Hit(encodable(text).encode(), score)


class Metrics:
    """One set a server; every name starts with `retrieval_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "retrieval_requests", "Requests answered, by status", ["status"], registry=self.registry
        )
        self.queries = Counter("retrieval_queries", "Queries answered", registry=self.registry)
        self.empty = Counter(
            "retrieval_empty_results", "Queries for which nothing was found", registry=self.registry
        )
        self.request_seconds = Histogram(
            "retrieval_request_seconds",
            "From the request's head to its answer",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.backend_seconds = Histogram(
            "retrieval_backend_seconds",
            "One batch in the backend",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batch_queries = Histogram(
            "retrieval_batch_queries",
            "Queries in a batch",
            buckets=_QUERIES,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "retrieval_waiting_queries", "Queries waiting for a batch", registry=self.registry
        )
        self.unrecorded = Counter(
            "retrieval_unrecorded_queries",
            "Answers that --record could not write",
            registry=self.registry,
        )
        self.replay_misses = Counter(
            "retrieval_replay_misses",
            "Queries that the replayed file does not hold",
            registry=self.registry,
        )

    def text(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)
