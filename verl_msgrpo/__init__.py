"""Multi-Scale GRPO: group relative advantages averaged over subgroups of many sizes.

The names below are imported when they are first used: verl imports this package in every process
for its plugin, and most of those processes never compute an advantage.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from verl_msgrpo.estimator.advantages import ms_grpo_advantages, ms_grpo_advantages_by_group
    from verl_msgrpo.estimator.config import MSGRPOConfig

__all__ = ["MSGRPOConfig", "__version__", "ms_grpo_advantages", "ms_grpo_advantages_by_group"]

_HOMES = {
    "MSGRPOConfig": "verl_msgrpo.estimator.config",
    "ms_grpo_advantages": "verl_msgrpo.estimator.advantages",
    "ms_grpo_advantages_by_group": "verl_msgrpo.estimator.advantages",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
