"""Reading single values of a composed configuration."""

import os
import re
from urllib.parse import urlsplit

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

A = "actor_rollout_ref"


def value(config: DictConfig, key: str) -> object:
    """What stands at `a.b.c`; None where nothing does, or where it must still be set (`???`)."""
    try:
        return OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return None


def whole(config: DictConfig, key: str, default: int = 1) -> int:
    """A whole number at `key`, `default` where there is none. `numbers.py` has checked it."""
    found = value(config, key)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def number(config: DictConfig, key: str, default: float = 0.0) -> float:
    """A number at `key`, `default` where there is none."""
    found = value(config, key)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number else default  # type: ignore[arg-type]


def text(config: DictConfig, key: str) -> str | None:
    """A text at `key` that is not empty, else None."""
    found = value(config, key)
    return found if isinstance(found, str) and found else None


def texts(config: DictConfig, key: str) -> list[str]:
    """One text or a list of them, as a list."""
    found = value(config, key)
    if isinstance(found, str):
        return [found]
    return [str(item) for item in found] if isinstance(found, ListConfig | list) else []


def local_path(path: str) -> str | None:
    """The path on this machine, None for an address such as hdfs://..."""
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    if urlsplit(path).scheme not in ("", "file"):
        return None
    return os.path.expanduser(path)


def is_on(config: DictConfig, key: str) -> bool:
    """Whether a switch is on."""
    return value(config, key) is True


def quoted(text: str) -> str:
    """A text as Hydra reads it, in quotes where it needs them.

    Hydra takes backslashes as they are, but before a quote; OmegaConf takes `${` as a reference.
    """
    is_word = re.fullmatch(r"[A-Za-z_/][A-Za-z0-9_./:-]*", text)
    if is_word and text.lower() not in ("null", "true", "false", "inf", "nan"):
        return text
    doubled = re.sub(r"(\\*)'", r"\1\1\\'", text)
    doubled = re.sub(r"(\\+)$", r"\1\1", doubled).replace("${", "\\${")
    return f"'{doubled}'"
