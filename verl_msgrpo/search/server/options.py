"""What `verl-msgrpo serve` is asked for: what to serve, where, and how much one request may ask."""

import os
from dataclasses import dataclass
from pathlib import Path

from verl_msgrpo.errors import UserError


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


@dataclass(frozen=True)
class ServeOptions:
    """The options of the command under their own names; replicas on other machines get them too.

    Raises:
        UserError: they contradict each other; it names the flags.
    """

    index: Path | None = None
    """Made by `verl-msgrpo index`. One of index, remote and replay is needed."""
    remote: str | None = None
    """The whole address of another server, as in http://127.0.0.1:8000/retrieve."""
    replay: Path | None = None
    """A recording to answer from."""
    record: Path | None = None
    """Where to append every new query and its answer."""
    backend: str | None = None
    """bm25, dense or hybrid; None is all that the index holds."""
    scorer: str = "auto"
    device: str = "cpu"
    verify_hashes: bool = True
    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    port_file: Path | None = None
    """Where the port is written once the server is ready."""
    threads: int = min(4, os.cpu_count() or 1)
    """Batches searched at one time."""
    max_batch: int = 64
    """Queries in a batch."""
    max_waiting: int = 8192
    """Queries that may wait for one."""
    max_connections: int = 8192
    timeout_s: float = 30.0
    """From the head of a request to its answer."""
    replicas: int | None = None
    """Of a Ray Serve deployment; None serves from this process."""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        sources = [source for source in (self.index, self.remote, self.replay) if source]
        if len(sources) != 1:
            raise UserError("one of --index, --remote and --replay is needed")
        if self.limits.default_topk > self.limits.max_topk:
            raise UserError(
                f"--topk {self.limits.default_topk} is above --max-topk {self.limits.max_topk}"
            )
        if self.record and self.replay:
            raise UserError("--record and --replay exclude each other")
        if self.backend and not self.index:
            raise UserError("--backend chooses a part of an --index")
        if self.record and self.replicas:
            raise UserError("--record needs one process: leave out --replicas")
