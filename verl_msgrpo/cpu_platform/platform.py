"""verl's description of a device, for the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import psutil
import torch
from verl.plugin.platform.platform_base import PlatformBase


class _CPUDeviceModule(ModuleType):
    """`torch.cpu`, with the functions of `torch.cuda` that verl calls and `torch.cpu` lacks."""

    def __init__(self) -> None:
        super().__init__("torch.cpu")

    def __getattr__(self, name: str) -> object:
        return getattr(torch.cpu, name)

    @staticmethod
    def memory_allocated(device: object = None) -> int:
        """Bytes of this process that are resident."""
        return psutil.Process().memory_info().rss

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    @staticmethod
    def mem_get_info(device: object = None) -> tuple[int, int]:
        """Bytes (available, total) of the machine."""
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @staticmethod
    def empty_cache() -> None:
        pass

    @staticmethod
    def ipc_collect() -> None:
        pass

    @staticmethod
    def reset_peak_memory_stats(device: object = None) -> None:
        pass

    @staticmethod
    def get_rng_state(device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: object = None) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def manual_seed(seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    @staticmethod
    def get_device_name(device: object = None) -> str:
        return "CPU"

    @staticmethod
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return True


class CPUPlatform(PlatformBase):
    """The platform `cpu`. Ray schedules it through logical "GPU" slots.

    verl counts and places its workers by Ray's "GPU" resource, so a run on CPU gives Ray as many
    of them as it has ranks: `+ray_kwargs.ray_init.num_gpus=N`. They are slots, not devices.
    """

    _device_module = _CPUDeviceModule()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._device_module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Never detected: chosen by `VERL_PLATFORM=cpu` alone."""
        return False

    def current_device(self) -> torch.device:  # type: ignore[override]
        """verl passes this on as `device=`, where a bare 0 would mean the first GPU."""
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """verl then hands weights over in shared memory instead of CUDA IPC."""
        return False

    def cudart(self) -> None:
        return None
