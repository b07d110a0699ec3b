"""The application at an address: under uvicorn in this process, or as replicas of Ray Serve.

`serve` is the door: it listens, opens what is to be served, says that it is ready, and stays until
SIGTERM or SIGINT. Under Ray Serve each replica opens the index itself, so its path must be readable
on every node; batching and queueing are Ray's, and its proxy answers 503 (without Retry-After) to
what its queue does not hold.
"""

import asyncio
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.app import Search, Service, build_app
from verl_msgrpo.search.server.backends import Backend, Hit
from verl_msgrpo.search.server.batching import MicroBatcher, search_together
from verl_msgrpo.search.server.index import open_index
from verl_msgrpo.search.server.options import ServeOptions
from verl_msgrpo.search.server.protocol import Metrics

MAX_HEAD_BYTES = 64 * 1024
RAY_APP_NAME = "verl-msgrpo-search"
# Clients keep their connections through the minutes between two rollout phases.
_KEEP_ALIVE_S = 600


def serve(options: ServeOptions) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        UserError: what cannot be served, in one line.
    """
    if options.port_file:  # before a long load
        _check_writable(options.port_file)
    if options.replicas:
        _serve_with_ray(options, options.replicas)
    else:
        _serve_here(options)


def open_backend(options: ServeOptions, metrics: Metrics) -> Backend:
    """Opens what the options name."""
    # httpx is for these three alone.
    from verl_msgrpo.search.server.backends.proxy import (
        RecordingBackend,
        RemoteBackend,
        ReplayBackend,
    )

    if options.replay:
        return ReplayBackend(options.replay, metrics)
    backend: Backend
    if options.remote:
        backend = RemoteBackend(options.remote, options.timeout_s)
    else:
        assert options.index is not None  # ServeOptions sees to it
        backend = open_index(
            options.index, options.backend, options.scorer, options.device, options.verify_hashes
        )
    return RecordingBackend(backend, options.record, metrics) if options.record else backend


def _service(
    options: ServeOptions,
    backend: Backend,
    search: Search,
    metrics: Metrics,
    close: Callable[[], None],
) -> ASGIApp:
    return build_app(
        Service(
            search=search,
            backend=backend.name,
            passages=backend.passages,
            limits=options.limits,
            timeout_s=options.timeout_s,
            metrics=metrics,
            close=close,
        )
    )


def _serve_here(options: ServeOptions) -> None:
    listener = listen(options.host, options.port)  # a taken port shows before a long load
    metrics = Metrics()
    backend = open_backend(options, metrics)
    batcher = MicroBatcher(
        backend,
        options.threads,
        options.max_batch,
        options.max_waiting,
        options.limits.max_answer_bytes,
        metrics,
    )
    config = uvicorn.Config(
        _service(options, backend, batcher.search, metrics, batcher.close),
        http=BoundedHeadProtocol,
        limit_concurrency=options.max_connections + 1,  # uvicorn refuses the one that reaches it
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=_KEEP_ALIVE_S,
        # Requests in flight at a SIGTERM are answered within their own deadline.
        timeout_graceful_shutdown=int(options.timeout_s) + 1,
    )
    held = "" if backend.passages is None else f", {backend.passages} passages"
    port = listener.getsockname()[1]
    _allow_many_connections()
    server = _Server(config, lambda: announce(options, port, backend.name + held))
    # uvicorn stops on either signal and then raises it again: a clean stop should exit with 0. Its
    # own handler takes a signal that comes before uvicorn listens for them, too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    server.run(sockets=[listener])
    if server.refusal:
        raise server.refusal


class _Server(uvicorn.Server):
    """Calls `ready` when it answers; a UserError of that ends it and is kept in `refusal`."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self.refusal: UserError | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:  # a signal came before
            return
        try:
            self._ready()
        except UserError as error:  # raised here, uvicorn would print a traceback
            self.refusal = error
            self.handle_exit(signal.SIGTERM, None)


class BoundedHeadProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers do not end within `MAX_HEAD_BYTES`.

    httptools has no such bound, and h11, which has one, takes twice the processor time per request.
    """

    _in_head = True
    _head_bytes = 0
    _passed_a_boundary = False

    def data_received(self, data: bytes) -> None:
        self._passed_a_boundary = False
        super().data_received(data)
        if not self._in_head or self._passed_a_boundary:
            return  # a read that ends a head or a message belongs to more than one head
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of the request is larger than {MAX_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head, self._head_bytes, self._passed_a_boundary = False, 0, True

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head_bytes, self._passed_a_boundary = True, 0, True


def build_replica(options: ServeOptions) -> ASGIApp:
    """Builds the application of one replica, in the replica's process."""
    from ray import serve

    metrics = Metrics()
    backend = open_backend(options, metrics)

    @serve.batch(
        max_batch_size=options.max_batch,
        batch_wait_timeout_s=0,
        max_concurrent_batches=options.threads,
    )
    async def search(requests: list[tuple[Sequence[str], int]]) -> list[list[list[Hit]]]:
        return await asyncio.to_thread(search_together, backend, requests, metrics)

    async def search_one(queries: Sequence[str], k: int) -> list[list[Hit]]:
        return await search((queries, k))

    return _service(options, backend, search_one, metrics, backend.close)


def _serve_with_ray(options: ServeOptions, replicas: int) -> None:
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise UserError(f'--replicas needs `pip install "ray[serve]"`: {error}') from None
    with listen(options.host, options.port) as probe:  # a taken or a free port, before Ray starts
        port = int(probe.getsockname()[1])
    ray.init(ignore_reinit_error=True, log_to_driver=True)
    serve.start(
        http_options={
            "host": options.host,
            "port": port,
            "request_timeout_s": options.timeout_s + 1,
        }
    )
    deployment = serve.deployment(
        serve.ingress(lambda: build_replica(options))(),
        name="retrieval",
        num_replicas=replicas,
        max_ongoing_requests=2 * options.threads * options.max_batch,
        max_queued_requests=options.max_waiting,
        ray_actor_options={"num_cpus": options.threads},
    )
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        serve.run(deployment.bind(), name=RAY_APP_NAME, route_prefix="/")
        announce(options, port, f"{replicas} replicas on Ray Serve")
        stopped.wait()
    finally:
        serve.delete(RAY_APP_NAME)


def listen(host: str, port: int) -> socket.socket:
    """Binds a TCP socket; raises UserError where that fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error} (--port 0 takes a free one)"
        ) from None
    return listener


def announce(options: ServeOptions, port: int, what: str) -> None:
    """Says that the server is ready: in the port file, and in one line on stdout."""
    if options.port_file:
        # Renamed into place: a reader never sees half a number.
        partial = _partial(options.port_file)
        try:
            partial.write_text(f"{port}\n")
            partial.replace(options.port_file)
        except OSError as error:
            raise UserError(
                f"--port-file {options.port_file}: cannot be written: {error}"
            ) from None
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"ready: http://{host}:{port}/retrieve ({what})", flush=True)


def _check_writable(port_file: Path) -> None:
    if port_file.is_dir():
        raise UserError(f"--port-file {port_file}: a directory")
    partial = _partial(port_file)
    try:
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise UserError(f"--port-file {port_file}: cannot be written: {error}") from None


def _partial(port_file: Path) -> Path:
    return port_file.with_name(f".{port_file.name}.{os.getpid()}")


def _allow_many_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
        wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
