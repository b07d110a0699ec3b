"""The retrieval servers of the search tools: one search each, before anything starts."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from omegaconf import DictConfig

from verl_msgrpo.errors import UserError
from verl_msgrpo.preflight.settings import (
    ROLLOUT,
    WARNING,
    Problem,
    local_path,
    one_line,
    text,
    value,
    whole,
)
from verl_msgrpo.search.client import probe
from verl_msgrpo.search.settings import SearchSettings, read_settings, search_tool_configs

CHECK = "services"
TOOL_FILE = f"{ROLLOUT}.multi_turn.tool_config_path"
WORKER_ENV = "ray_kwargs.ray_init.runtime_env.env_vars"
PROBE_LIMIT_S = 3.0  # of each attempt
_LOOPBACK = ("localhost", "::1")


def check_services(config: DictConfig) -> Iterator[Problem]:
    """Settings of the search tools and an answer of their servers.

    The tool file is read with the environment that the run gives its workers.
    """
    path = text(config, TOOL_FILE)
    local = local_path(path) if path else None
    if local is None or not os.path.isfile(local):
        return  # check_files reports what does not exist
    given = value(config, WORKER_ENV)
    with environment(given if isinstance(given, DictConfig) else {}):
        try:
            tools = [read_settings(tool) for tool in search_tool_configs(local)]
        except UserError as error:
            yield Problem(CHECK, one_line(error), f"{TOOL_FILE}=<a file without it>")
            return
    for tool in tools:
        yield from _server(config, tool)
        yield from _room(config, tool)


def _server(config: DictConfig, tool: SearchSettings) -> Iterator[Problem]:
    url = tool.client.url
    fix = f"+{WORKER_ENV}.RETRIEVAL_SERVICE_URL='http://<host>:8000/retrieve'"
    host = urlsplit(url).hostname or ""
    if whole(config, "trainer.nnodes") > 1 and (host in _LOOPBACK or host.startswith("127.")):
        message = f"{url}: the other nodes cannot reach a loopback address"
        yield Problem(CHECK, message, f"{fix} (verl-msgrpo serve --host <private address>)")
    if not tool.probe:
        return
    try:
        probe(dataclasses.replace(tool.client, timeout=min(tool.client.timeout, PROBE_LIMIT_S)))
    except UserError as error:
        yield Problem(CHECK, one_line(error), fix)


def _room(config: DictConfig, tool: SearchSettings) -> Iterator[Problem]:
    """Observations count as response: they must leave the model room to write."""
    turns = whole(config, f"{ROLLOUT}.multi_turn.max_assistant_turns", default=0)
    length = whole(config, "data.max_response_length")
    if turns > 1 and (turns - 1) * tool.max_observation_tokens >= length:
        shown = (turns - 1) * tool.max_observation_tokens
        message = (
            f"{turns - 1} searches may show {shown} tokens, and the whole response has {length}"
        )
        yield Problem(CHECK, message, f"data.max_response_length={2 * shown}", WARNING)


@contextlib.contextmanager
def environment(given: Mapping[str, object]) -> Iterator[None]:
    """Sets environment variables inside the block."""
    before = {str(name): os.environ.get(str(name)) for name in given}
    try:
        os.environ.update({str(name): str(given[name]) for name in given})
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old
