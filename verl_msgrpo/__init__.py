"""Multi-Scale GRPO for verl."""

from verl_msgrpo._version import __version__

__all__ = ["__version__"]
