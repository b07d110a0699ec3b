"""The configuration of the search tool, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.client import ClientSettings

# key -> (type, lowest value, default)
_NUMBERS: dict[str, tuple[type, float, float]] = {
    "topk": (int, 1, 3),
    "timeout": (float, 0.01, 30.0),
    "max_retries": (int, 0, 2),
    "num_workers": (int, 1, 120),
    "rate_limit": (int, 1, 120),
    "cache_size": (int, 0, 4096),
    "max_observation_tokens": (int, 32, 512),
}
# `enable_global_rate_limit` is read and ignored: the limit is that of one worker process.
_KEYS = ("retrieval_service_url", *_NUMBERS, "probe", "enable_global_rate_limit", "type")


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
    url = config.get("retrieval_service_url")
    if not isinstance(url, str) or not _is_url(url):
        raise UserError(
            f"search tool: retrieval_service_url is {url!r}, not a URL like "
            "http://127.0.0.1:8000/retrieve"
        )
    numbers = {name: _number(config, name) for name in _NUMBERS}
    probe = config.get("probe", True)
    if not isinstance(probe, bool):
        raise UserError(f"search tool: probe is {probe!r}, it must be true or false")
    return SearchSettings(
        client=ClientSettings(
            url=url,
            topk=int(numbers["topk"]),
            timeout=float(numbers["timeout"]),
            max_retries=int(numbers["max_retries"]),
            max_in_flight=int(min(numbers["num_workers"], numbers["rate_limit"])),
            cache_size=int(numbers["cache_size"]),
        ),
        max_observation_tokens=int(numbers["max_observation_tokens"]),
        probe=probe,
    )


def _number(config: Mapping[str, object], name: str) -> float:
    kind, lowest, default = _NUMBERS[name]
    value = config.get(name, default)
    accepted = (int, float) if kind is float else int
    # NaN fails the comparison too.
    if isinstance(value, bool) or not isinstance(value, accepted) or not lowest <= value <= 1e9:
        noun = "a number" if kind is float else "a whole number"
        raise UserError(f"search tool: {name} is {value!r}, it must be {noun} of {lowest} or more")
    return value


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
