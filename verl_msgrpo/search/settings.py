"""How the search tool is configured: its `config` section, and verl's file that holds it.

verl names that file in `multi_turn.tool_config_path`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_msgrpo.common.numbers import integer, not_allowed, real
from verl_msgrpo.errors import UserError

SEARCH_TOOL_NAMES = ("verl_msgrpo.search.SearchTool", "verl_msgrpo.search.tool.SearchTool")

# key -> (lowest value, default)
_INTEGERS = {
    "topk": (1, 3),
    "max_retries": (0, 2),
    "num_workers": (1, 120),
    "rate_limit": (1, 120),
    "cache_size": (0, 4096),
    "max_observation_tokens": (32, 512),
}
_MOST = 10**9  # of anything; far longer waits overflow the clock
# `enable_global_rate_limit` is read and ignored: the limit is that of one worker process.
_KEYS = (
    "retrieval_service_url",
    "timeout",
    *_INTEGERS,
    "probe",
    "enable_global_rate_limit",
    "type",
)


@dataclass(frozen=True)
class ClientSettings:
    """Where and how to ask."""

    url: str
    topk: int = 3
    timeout: float = 30.0
    """Seconds for one request."""
    max_retries: int = 2
    """Further requests after a failed one; a call takes `timeout * (1 + max_retries)` at most."""
    max_in_flight: int = 120
    """Requests of this client at one time."""
    cache_size: int = 4096
    """Queries whose answers are kept; 0 keeps none."""

    @property
    def deadline(self) -> float:
        """Seconds that a whole call may take, waiting and retries included."""
        return self.timeout * (1 + self.max_retries)


@dataclass(frozen=True)
class SearchSettings:
    """What the `config` section of the tool says."""

    client: ClientSettings
    max_observation_tokens: int
    probe: bool
    """Whether to make sure, when the tool is made, that the server answers."""


def read_settings(config: Mapping[str, object]) -> SearchSettings:
    """Reads the keys of verl's removed SearchTool and ours. Raises UserError naming the key."""
    unknown = sorted(set(config) - set(_KEYS))
    if unknown:
        raise UserError(f"search tool: unknown key {', '.join(unknown)}; known: {', '.join(_KEYS)}")
    try:
        return _read(config)
    except ValueError as error:
        raise UserError(f"search tool: {error}") from None


def _read(config: Mapping[str, object]) -> SearchSettings:
    """Raises ValueError."""
    url = config.get("retrieval_service_url")
    if not isinstance(url, str) or not _is_url(url):
        example = "a URL like http://127.0.0.1:8000/retrieve"
        raise not_allowed("retrieval_service_url", example, url)
    numbers = {
        name: integer(name, config.get(name, default), low, _MOST)
        for name, (low, default) in _INTEGERS.items()
    }
    probe = config.get("probe", True)
    if not isinstance(probe, bool):
        raise not_allowed("probe", "true or false", probe)
    return SearchSettings(
        client=ClientSettings(
            url=url,
            topk=numbers["topk"],
            timeout=real("timeout", config.get("timeout", 30.0), 0.01, _MOST),
            max_retries=numbers["max_retries"],
            max_in_flight=min(numbers["num_workers"], numbers["rate_limit"]),
            cache_size=numbers["cache_size"],
        ),
        max_observation_tokens=numbers["max_observation_tokens"],
        probe=probe,
    )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def search_tool_configs(path: str) -> list[dict[str, object]]:
    """The `config` of each SearchTool, with the environment's values filled in.

    Subclasses of SearchTool are left out: to know one, their module would have to be imported.

    Raises:
        UserError: the file cannot be used, in one line.
    """
    try:
        return _configs(path)
    except OSError as error:
        reason = str(error.strerror or error)
    except (ValueError, YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
    raise UserError(f"tool_config_path {path}: {reason}")


def _configs(path: str) -> list[dict[str, object]]:
    content = OmegaConf.load(path)
    tools = content.get("tools") if isinstance(content, DictConfig) else None
    if not isinstance(tools, ListConfig):
        raise ValueError("it needs a list under `tools:`")
    found = []
    for number, tool in enumerate(tools, 1):
        name = tool.get("class_name") if isinstance(tool, DictConfig) else None
        settings = tool.get("config") if isinstance(tool, DictConfig) else None
        if not isinstance(name, str) or not isinstance(settings, DictConfig):
            raise ValueError(f"tool {number} needs `class_name:` and `config:`")
        if name in SEARCH_TOOL_NAMES:
            found.append(cast(dict[str, object], OmegaConf.to_container(settings, resolve=True)))
    return found
