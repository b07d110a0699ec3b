"""The server's counters, in Prometheus' text format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


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
