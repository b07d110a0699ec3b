"""Runs an unmodified verl without an accelerator: FSDP2 over gloo, rollouts by vLLM's CPU build.

Installed by the plugin when `VERL_PLATFORM=cpu`, and only then. What verl offers a registry for is
registered (`platform.py`); what it does not is patched, one module a reason:

- `process_group.py`: gloo instead of "cpu:gloo,cpu:gloo"; averages over gloo.
- `vllm_distribution.py`: vLLM's CPU build is a distribution of another name.
- `vllm_linear.py`: vLLM's CPU linear layers lose the weights that a weight update writes to.
"""

import os
from collections.abc import Callable
from types import ModuleType

from verl_msgrpo.checked_versions import warn_if_unchecked
from verl_msgrpo.cpu_platform import process_group, vllm_distribution, vllm_linear

# Read by verl, Ray and vLLM in the driver and, inherited, in the workers. Set only where unset.
ENVIRONMENT = {
    # verl's engine registry has no entry for "cpu"; the FSDP engine registered for "cuda" asks the
    # platform for its device and runs on either.
    "VERL_ENGINE_DEVICE": "cuda",
    # Ray hides the (here: logical) GPU slots of an actor that asks for none of them.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # GiB of memory for vLLM's KV cache; its own default is 4 and grows with the machine's memory.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # vLLM pins its threads to cores of its own choice, which the trainer shares.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # vLLM and verl compile a few functions at the first call, for longer than a small run needs
    # them; 0 turns it on again.
    "TORCH_COMPILE_DISABLE": "1",
}


def install(on_import: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
    """Registers the platform and its patches; `on_import(name, action)` defers to an import."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for package in ("verl", "vllm-cpu"):  # what is patched
        warn_if_unchecked(package)
    vllm_distribution.install()
    on_import("verl.plugin.platform.platform_manager", _register_platform)
    on_import("verl.utils.distributed", process_group.use_plain_gloo)
    on_import("torch.distributed", process_group.average_over_gloo)
    on_import("vllm.model_executor.layers.utils", vllm_linear.keep_weights)


def _register_platform(platform_manager: ModuleType) -> None:
    from verl_msgrpo.cpu_platform.platform import CPUPlatform

    platform_manager.PlatformRegistry.register(platform="cpu")(CPUPlatform)
