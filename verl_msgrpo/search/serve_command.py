"""`verl-msgrpo serve`: a retrieval server that speaks Search-R1's protocol."""

import argparse
import os
import resource
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from verl_msgrpo.arguments import positive
from verl_msgrpo.errors import UserError

if TYPE_CHECKING:
    from verl_msgrpo.search.server.backends import Backend
    from verl_msgrpo.search.server.metrics import Metrics
    from verl_msgrpo.search.server.protocol import Limits

# Clients keep their connections through the minutes between two rollout phases.
_KEEP_ALIVE_SECONDS = 600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--index", type=Path, metavar="DIR", help="made by `verl-msgrpo index`")
    source.add_argument("--remote", metavar="URL", help="pass on to a Search-R1-compatible server")
    source.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="answer from a recorded file; a query that it does not hold gets an empty list",
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="append every new query and its answer"
    )
    parser.add_argument("--host", default="127.0.0.1", help="(default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
    parser.add_argument(
        "--port-file",
        type=Path,
        metavar="FILE",
        help="write the port here once the server is ready",
    )
    parser.add_argument("--topk", type=positive, default=3, help="where a request has none (3)")

    index = parser.add_argument_group("index")
    index.add_argument(
        "--backend",
        choices=("bm25", "dense", "hybrid"),
        help="which part of the index to use (default: all of it)",
    )
    index.add_argument(
        "--scorer",
        choices=("auto", "numpy", "numba"),
        default="auto",
        help="how bm25s scores; numba is faster on large corpora but compiles at start, and may "
        "order equal scores differently",
    )
    index.add_argument("--device", default="cpu", help="where queries are encoded (default: cpu)")
    index.add_argument(
        "--skip-verify",
        action="store_true",
        help="check the sizes of the index's files only, not their SHA-256",
    )

    load = parser.add_argument_group("load")
    load.add_argument(
        "--threads",
        type=positive,
        default=min(4, os.cpu_count() or 1),
        help="batches searched at one time (default: the number of cores, 4 at most)",
    )
    load.add_argument("--max-batch", type=positive, default=64, help="queries in a batch (64)")
    load.add_argument(
        "--max-waiting",
        type=positive,
        default=8192,
        help="queries that may wait; beyond, requests get 503 with Retry-After (8192)",
    )
    load.add_argument(
        "--max-connections",
        type=positive,
        default=8192,
        help="open at one time, idle ones too; requests on further ones get 503 (8192)",
    )
    load.add_argument(
        "--timeout", type=_seconds, default=30.0, help="seconds until a request gets 503 (30)"
    )
    load.add_argument(
        "--replicas",
        type=positive,
        metavar="N",
        help="run as a Ray Serve deployment of N replicas (needs ray[serve])",
    )

    limits = parser.add_argument_group("limits of one request (beyond: 422)")
    limits.add_argument("--max-topk", type=positive, default=100, help="(100)")
    limits.add_argument("--max-queries", type=positive, default=4096, help="(4096)")
    limits.add_argument(
        "--max-results", type=positive, default=20_000, help="queries times top-k (20000)"
    )
    limits.add_argument("--max-query-chars", type=positive, default=10_000, help="(10000)")
    limits.add_argument("--max-body-bytes", type=positive, default=8 << 20, help="(8 MiB)")
    limits.add_argument(
        "--max-answer-bytes", type=positive, default=64 << 20, help="all passages (64 MiB)"
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM or SIGINT; raises UserError for what cannot be served."""
    if args.topk > args.max_topk:
        raise UserError(f"--topk {args.topk} is above --max-topk {args.max_topk}")
    if args.record and args.replay:
        raise UserError("--record and --replay exclude each other")
    if args.backend and not args.index:
        raise UserError("--backend chooses a part of an --index")
    if args.record and args.replicas:
        raise UserError("--record needs one process: leave out --replicas")
    if not 0 <= args.port <= 65535:
        raise UserError(f"--port {args.port}: not a port")
    if args.port_file:  # before a long load
        _check_writable(args.port_file)
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError(f"serving needs `pip install verl-msgrpo[search]`: {error}") from None
    if args.replicas:
        from verl_msgrpo.search.server.ray_serve import serve_with_ray

        return serve_with_ray(args)
    return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    import uvicorn

    from verl_msgrpo.search.server.app import Service, build_app
    from verl_msgrpo.search.server.batching import MicroBatcher
    from verl_msgrpo.search.server.bounded_head import BoundedHeadProtocol
    from verl_msgrpo.search.server.metrics import Metrics

    listener = listen(args.host, args.port)  # a taken port shows before a long load
    metrics = Metrics()
    backend = open_backend(args, metrics)
    batcher = MicroBatcher(
        backend, args.threads, args.max_batch, args.max_waiting, args.max_answer_bytes, metrics
    )
    app = build_app(
        Service(
            search=batcher.search,
            backend=backend.name,
            passages=backend.passages,
            limits=read_limits(args),
            timeout_seconds=args.timeout,
            metrics=metrics,
            close=batcher.close,
        )
    )
    config = uvicorn.Config(
        app,
        http=BoundedHeadProtocol,
        limit_concurrency=args.max_connections + 1,  # uvicorn refuses the one that reaches it
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        # Requests in flight at a SIGTERM are answered within their own deadline.
        timeout_graceful_shutdown=int(args.timeout) + 1,
    )

    class Server(uvicorn.Server):
        refusal: UserError | None = None

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.should_exit:  # a signal came before
                return
            held = "" if backend.passages is None else f", {backend.passages} passages"
            try:
                announce(args, listener.getsockname()[1], backend.name + held)
            except UserError as error:  # raised here, uvicorn would print a traceback
                self.refusal = error
                self.handle_exit(signal.SIGTERM, None)

    _allow_many_connections()
    server = Server(config)
    # uvicorn stops on either signal and then raises it again: a clean stop should exit with 0. Its
    # own handler takes a signal that comes before uvicorn listens for them, too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    server.run(sockets=[listener])
    if server.refusal:
        raise server.refusal
    return 0


def read_limits(args: argparse.Namespace) -> "Limits":
    """What one request may ask of the server."""
    from verl_msgrpo.search.server.protocol import Limits

    return Limits(
        default_topk=args.topk,
        max_topk=args.max_topk,
        max_queries=args.max_queries,
        max_results=args.max_results,
        max_query_chars=args.max_query_chars,
        max_body_bytes=args.max_body_bytes,
        max_answer_bytes=args.max_answer_bytes,
    )


def open_backend(args: argparse.Namespace, metrics: "Metrics") -> "Backend":
    """Opens the backend that the arguments name."""
    from verl_msgrpo.search.server.backends.recording import RecordingBackend, ReplayBackend
    from verl_msgrpo.search.server.backends.remote import RemoteBackend
    from verl_msgrpo.search.server.opening import open_index

    if args.replay:
        return ReplayBackend(args.replay, metrics)
    backend: Backend
    if args.remote:
        backend = RemoteBackend(args.remote, args.timeout)
    else:
        backend = open_index(
            args.index, args.backend, args.scorer, args.device, not args.skip_verify
        )
    return RecordingBackend(backend, args.record, metrics) if args.record else backend


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


def announce(args: argparse.Namespace, port: int, what: str) -> None:
    """Says that the server is ready: in the port file, and in one line on stdout."""
    if args.port_file:
        # Renamed into place: a reader never sees half a number.
        partial = _partial(args.port_file)
        try:
            partial.write_text(f"{port}\n")
            partial.replace(args.port_file)
        except OSError as error:
            raise UserError(f"--port-file {args.port_file}: cannot be written: {error}") from None
    host = f"[{args.host}]" if ":" in args.host else args.host
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


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 86400:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value
