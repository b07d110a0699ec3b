"""The same application as a Ray Serve deployment: Ray's batching, queueing and replicas.

Each replica opens the index itself, so its path must be readable on every node. Ray's proxy answers
503 (without Retry-After) to what its queue does not hold.
"""

import argparse
import asyncio
import signal
import threading
from collections.abc import Sequence

from starlette.types import ASGIApp

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.serve_command import announce, listen, open_backend, read_limits
from verl_msgrpo.search.server.app import Service, build_app
from verl_msgrpo.search.server.backends import Hit
from verl_msgrpo.search.server.batching import search_together
from verl_msgrpo.search.server.metrics import Metrics

APP_NAME = "verl-msgrpo-search"

Asked = tuple[Sequence[str], int]  # queries, k


def build_replica(args: argparse.Namespace) -> ASGIApp:
    """Builds the application of one replica, in the replica's process."""
    from ray import serve

    metrics = Metrics()
    backend = open_backend(args, metrics)

    @serve.batch(
        max_batch_size=args.max_batch, batch_wait_timeout_s=0, max_concurrent_batches=args.threads
    )
    async def search(requests: list[Asked]) -> list[list[list[Hit]]]:
        return await asyncio.to_thread(search_together, backend, requests, metrics)

    async def search_one(queries: Sequence[str], k: int) -> list[list[Hit]]:
        return await search((queries, k))

    return build_app(
        Service(
            search=search_one,
            backend=backend.name,
            passages=backend.passages,
            limits=read_limits(args),
            timeout_seconds=args.timeout,
            metrics=metrics,
            close=backend.close,
        )
    )


def serve_with_ray(args: argparse.Namespace) -> int:
    """Deploys `args.replicas` replicas, then waits for SIGTERM or SIGINT and removes them."""
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise UserError(f'--replicas needs `pip install "ray[serve]"`: {error}') from None
    with listen(args.host, args.port) as probe:  # a taken or a free port, before Ray starts
        port = int(probe.getsockname()[1])
    ray.init(ignore_reinit_error=True, log_to_driver=True)
    serve.start(
        http_options={"host": args.host, "port": port, "request_timeout_s": args.timeout + 1}
    )
    deployment = serve.deployment(
        serve.ingress(lambda: build_replica(args))(),
        name="retrieval",
        num_replicas=args.replicas,
        max_ongoing_requests=2 * args.threads * args.max_batch,
        max_queued_requests=args.max_waiting,
        ray_actor_options={"num_cpus": args.threads},
    )
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        serve.run(deployment.bind(), name=APP_NAME, route_prefix="/")
        announce(args, port, f"{args.replicas} replicas on Ray Serve")
        stopped.wait()
    finally:
        serve.delete(APP_NAME)
    return 0
