"""`verl-msgrpo serve`: a retrieval server that speaks Search-R1's protocol."""

import argparse
from pathlib import Path

from verl_msgrpo.common.numbers import integer_argument, real_argument
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.options import Limits, ServeOptions

_COUNT = integer_argument(1)


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
    parser.add_argument("--host", default=ServeOptions.host, help="(default: 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=integer_argument(0, 65535),
        default=ServeOptions.port,
        help="0 takes a free one (default: 8000)",
    )
    parser.add_argument(
        "--port-file",
        type=Path,
        metavar="FILE",
        help="write the port here once the server is ready",
    )
    parser.add_argument(
        "--topk", type=_COUNT, default=Limits.default_topk, help="where a request has none (3)"
    )

    index = parser.add_argument_group("index")
    index.add_argument(
        "--backend",
        choices=("bm25", "dense", "hybrid"),
        help="which part of the index to use (default: all of it)",
    )
    index.add_argument(
        "--scorer",
        choices=("auto", "numpy", "numba"),
        default=ServeOptions.scorer,
        help="how bm25s scores; numba is faster on large corpora but compiles at start, and may "
        "order equal scores differently",
    )
    index.add_argument(
        "--device", default=ServeOptions.device, help="where queries are encoded (default: cpu)"
    )
    index.add_argument(
        "--skip-verify",
        action="store_true",
        help="check the sizes of the index's files only, not their SHA-256",
    )

    load = parser.add_argument_group("load")
    load.add_argument(
        "--threads",
        type=_COUNT,
        default=ServeOptions.threads,
        help="batches searched at one time (default: the number of cores, 4 at most)",
    )
    load.add_argument(
        "--max-batch", type=_COUNT, default=ServeOptions.max_batch, help="queries in a batch (64)"
    )
    load.add_argument(
        "--max-waiting",
        type=_COUNT,
        default=ServeOptions.max_waiting,
        help="queries that may wait; beyond, requests get 503 with Retry-After (8192)",
    )
    load.add_argument(
        "--max-connections",
        type=_COUNT,
        default=ServeOptions.max_connections,
        help="open at one time, idle ones too; requests on further ones get 503 (8192)",
    )
    load.add_argument(
        "--timeout",
        type=real_argument(0.001, 86400),
        default=ServeOptions.timeout_s,
        help="seconds until a request gets 503 (30)",
    )
    load.add_argument(
        "--replicas",
        type=_COUNT,
        metavar="N",
        help="run as a Ray Serve deployment of N replicas (needs ray[serve])",
    )

    limits = parser.add_argument_group("limits of one request (beyond: 422)")
    limits.add_argument("--max-topk", type=_COUNT, default=Limits.max_topk, help="(100)")
    limits.add_argument("--max-queries", type=_COUNT, default=Limits.max_queries, help="(4096)")
    limits.add_argument(
        "--max-results", type=_COUNT, default=Limits.max_results, help="queries times top-k (20000)"
    )
    limits.add_argument(
        "--max-query-chars", type=_COUNT, default=Limits.max_query_chars, help="(10000)"
    )
    limits.add_argument(
        "--max-body-bytes", type=_COUNT, default=Limits.max_body_bytes, help="(8 MiB)"
    )
    limits.add_argument(
        "--max-answer-bytes",
        type=_COUNT,
        default=Limits.max_answer_bytes,
        help="all passages (64 MiB)",
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM or SIGINT; raises UserError for what cannot be served."""
    options = ServeOptions(
        index=args.index,
        remote=args.remote,
        replay=args.replay,
        record=args.record,
        backend=args.backend,
        scorer=args.scorer,
        device=args.device,
        verify_hashes=not args.skip_verify,
        host=args.host,
        port=args.port,
        port_file=args.port_file,
        threads=args.threads,
        max_batch=args.max_batch,
        max_waiting=args.max_waiting,
        max_connections=args.max_connections,
        timeout_s=args.timeout,
        replicas=args.replicas,
        limits=Limits(
            default_topk=args.topk,
            max_topk=args.max_topk,
            max_queries=args.max_queries,
            max_results=args.max_results,
            max_query_chars=args.max_query_chars,
            max_body_bytes=args.max_body_bytes,
            max_answer_bytes=args.max_answer_bytes,
        ),
    )
    try:
        from verl_msgrpo.search.server.endpoint import serve
    except ImportError as error:
        raise UserError(f"serving needs `pip install verl-msgrpo[search]`: {error}") from None
    serve(options)
    return 0
