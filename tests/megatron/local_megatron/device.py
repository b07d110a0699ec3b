"""The CPU, where Megatron's modules ask torch for a CUDA device.

Each module of `megatron` gets, as its global `torch`, a view of torch with another `torch.cuda` and
with factory functions that read `device="cuda"` as the CPU. torch itself stays as it is, but for
three methods of tensors and modules that cannot be reached through a module's globals.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

import torch

CPU = torch.device("cpu")


class _Cuda(ModuleType):
    """`torch.cuda` as far as Megatron's modules use it, by what verl's CPU platform offers."""

    Stream = torch.cpu.Stream

    def __getattr__(self, name: str) -> object:
        from verl_msgrpo.cpu_platform.platform import CPUPlatform

        for module in (CPUPlatform().device_module, torch.cuda):
            with contextlib.suppress(AttributeError):
                return getattr(module, name)
        raise AttributeError(name)

    @staticmethod
    def current_device() -> torch.device:
        return CPU

    @staticmethod
    def is_available() -> bool:
        return False

    @property
    def random(self) -> "_Cuda":
        """`torch.cuda.random.get_rng_state`."""
        return self


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def on_cpu(*args: object, **kwargs: object) -> torch.Tensor:
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = CPU
        return factory(*args, **kwargs)

    return on_cpu


class _Torch(ModuleType):
    """torch, for Megatron's modules."""

    cuda = _Cuda("torch.cuda")

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


for _name in ("empty", "empty_like", "tensor", "zeros"):
    setattr(_Torch, _name, staticmethod(_on_cpu(getattr(torch, _name))))

_TORCH = _Torch("torch")


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if getattr(module, "torch", None) is torch:
            setattr(module, "torch", _TORCH)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("megatron."):
            return None
        _patch_methods()
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


@functools.cache
def _patch_methods() -> None:
    """`tensor.cuda()`, `module.cuda()` and `tensor.type()`, by which Megatron sorts parameters."""
    torch_type = torch.Tensor.type

    def stay(self: object, *_: object, **__: object) -> object:
        return self

    def cuda_type(self: torch.Tensor, *args: object, **kwargs: object) -> object:
        found = torch_type(self, *args, **kwargs)
        return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) else found

    setattr(torch.Tensor, "cuda", stay)
    setattr(torch.nn.Module, "cuda", stay)
    setattr(torch.Tensor, "type", cuda_type)


def install() -> None:
    """Makes it so for each module of `megatron` that is imported from now on."""
    sys.meta_path.insert(0, _Finder())
