"""The HTTP application: the same one under uvicorn and as a Ray Serve deployment."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from verl_msgrpo import __version__
from verl_msgrpo.search.server.backends import BackendBroken, BackendUnavailable, Hit
from verl_msgrpo.search.server.batching import Overloaded
from verl_msgrpo.search.server.options import Limits
from verl_msgrpo.search.server.protocol import (
    ErrorResponse,
    Metrics,
    RequestError,
    RetrieveRequest,
    RetrieveResponse,
    dump_response,
    parse_request,
)

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1
_CLIENT_GONE = 499  # nginx's status for it; counted, never sent

Search = Callable[[Sequence[str], int], Awaitable[list[list[Hit]]]]


@dataclass(frozen=True)
class Service:
    """What the application needs to know about what it serves."""

    search: Search
    backend: str
    passages: int | None
    limits: Limits
    timeout_s: float  # from the request's head to its answer
    metrics: Metrics
    close: Callable[[], None]


def build_app(service: Service) -> ASGIApp:
    """Builds the application around a service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    pages = FastAPI(
        title="verl-msgrpo retrieval server",
        description="Speaks Search-R1's retrieval protocol.",
        version=__version__,
        lifespan=lifespan,
    )
    metrics = service.metrics
    bodies = _BodyBudget(8 * service.limits.max_body_bytes)

    @pages.post(
        "/retrieve",
        response_model=None,
        responses={
            200: {"model": RetrieveResponse},
            400: {"model": ErrorResponse, "description": "topk below 1"},
            422: {"model": ErrorResponse, "description": "Malformed, or beyond a limit"},
            502: {"model": ErrorResponse, "description": "The backend answered nonsense"},
            503: {"model": ErrorResponse, "description": "Busy; try again after Retry-After"},
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": RetrieveRequest.model_json_schema()}},
            }
        },
    )
    async def retrieve(request: Request) -> Response:
        """Finds the best passages for each query."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(service.timeout_s):
                response = await _answer(request)
        except ClientDisconnect:
            response = Response(status_code=_CLIENT_GONE)
        except RequestError as error:
            response = _error(error.status, error.reason)
        except Overloaded:
            response = _error(503, "too many requests are waiting, try again")
        except TimeoutError:
            response = _error(503, f"no answer within {service.timeout_s:g} s, try again")
        except BackendUnavailable as error:
            response = _error(503, str(error))
        except BackendBroken as error:
            response = _error(502, str(error))
        except Exception:
            logger.exception("a search failed")
            response = _error(500, "the search failed; the server's log says why")
        metrics.requests.labels(response.status_code).inc()
        metrics.request_seconds.observe(time.monotonic() - started)
        return response

    async def _answer(request: Request) -> Response:
        asked = await bodies.read(request, service.limits)
        assert asked.topk is not None  # parse_request fills it in
        results = await service.search(asked.queries, asked.topk)
        metrics.queries.inc(len(results))
        metrics.empty.inc(sum(not hits for hits in results))
        body = dump_response(results, asked.return_scores, service.limits.max_answer_bytes)
        return Response(body, media_type="application/json")

    @pages.get("/health")
    async def health() -> dict[str, str | int | None]:
        """Answers as long as the server runs, under overload too."""
        return {
            "status": "ok",
            "backend": service.backend,
            "passages": service.passages,
            "topk": service.limits.default_topk,
        }

    @pages.get("/metrics", response_class=Response)
    async def prometheus() -> Response:
        """Counters in Prometheus' text format."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # FastAPI's and Starlette's layers cost more than all the rest of a request. The route among
        # the pages stays for the documentation.
        if scope["type"] == "http" and scope["path"] == "/retrieve" and scope["method"] == "POST":
            response = await retrieve(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await pages(scope, receive, send)

    return app


def _error(status: int, reason: str) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
    return JSONResponse({"detail": reason}, status, headers=headers)


class _BodyBudget:
    """Bounds the memory of all request bodies that are being read at one time."""

    def __init__(self, max_bytes: int) -> None:
        self._free = max_bytes

    async def read(self, request: Request, limits: Limits) -> RetrieveRequest:
        """Reads and parses a body; raises RequestError when it is bad, Overloaded when all are."""
        most = limits.max_body_bytes
        too_large = RequestError(422, f"the body is larger than this server's {most} bytes")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > most:
            raise too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in request.stream():
                if len(chunk) > self._free:
                    raise Overloaded
                self._free -= len(chunk)
                size += len(chunk)
                if size > most:
                    raise too_large
                chunks.append(chunk)
            return parse_request(b"".join(chunks), limits)
        finally:
            self._free += size
