"""The verl plugin: what `import verl` loads through the entry point in group `verl.plugins`.

It is loaded in every process that imports verl: the driver, Ray's task runner and workers, and the
processes of vLLM. Most of them never compute an advantage, so nothing heavy is imported here: each
part of verl gets our entries at the moment when that part itself is imported.

`VERL_USE_EXTERNAL_MODULES=verl_msgrpo.verl_plugin` loads the same module; loading it twice, or both
ways, does nothing more.
"""

import logging
import os
from collections.abc import Callable
from types import ModuleType

logger = logging.getLogger(__name__)

try:
    from wrapt import when_imported
except ImportError as error:
    # verl itself logs a plugin that fails to import at DEBUG only.
    logger.warning("verl-msgrpo is not loaded (%s); run `verl-msgrpo doctor`", error)
    raise


def _on_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Runs `action(module)` once `name` is imported; at once if it is there already.

    An exception out of an import hook would break runs that use nothing of ours, so a failure is
    reported here, where users see it, and the import goes on.
    """

    def guarded(module: ModuleType) -> None:
        try:
            action(module)
        except Exception as error:
            logger.warning(
                "verl-msgrpo could not hook into %s (%s: %s); run `verl-msgrpo doctor`",
                name,
                type(error).__name__,
                error,
            )

    when_imported(name)(guarded)


def _register_estimator(core_algos: ModuleType) -> None:
    from verl_msgrpo.verl_plugin.estimator import compute_ms_grpo_advantage

    core_algos.register_adv_est("ms_grpo")(compute_ms_grpo_advantage)


def _register_trainers(v1: ModuleType) -> None:
    from verl_msgrpo.checked_versions import warn_if_unchecked

    # Before anything of another verl can fail; here, as few processes load the trainers.
    warn_if_unchecked("verl")
    from verl_msgrpo.verl_plugin.trainer import register_trainers

    register_trainers()


def _register_agent_loops(agent_loop: ModuleType) -> None:
    from verl_msgrpo.search import register_agent_loops

    register_agent_loops()


_on_import("verl.trainer.ppo.core_algos", _register_estimator)
_on_import("verl.trainer.ppo.v1", _register_trainers)
_on_import("verl.experimental.agent_loop", _register_agent_loops)

# Opt-in, never detected: the CPU-only head node of a GPU cluster must resolve its platform as
# verl does without this plugin.
if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    from verl_msgrpo import cpu_platform

    cpu_platform.install(_on_import)
