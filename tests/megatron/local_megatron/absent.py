"""Stand-ins for what megatron-bridge imports from Transformer Engine and ModelOpt.

megatron-bridge 0.5 imports both without asking whether they are there; both are made for GPUs. The
names stand for what a model without LoRA, quantisation and distillation never calls.
Megatron Core asks first, and must find neither: its parts that do are imported before.
"""

import importlib
import sys
import typing
from types import ModuleType

from wrapt import when_imported


class Absent:
    """A class or function of a package that is not there."""

    def __init__(self, *_: object, **__: object) -> None:
        raise NotImplementedError("this name stands for a package that is not installed")


NAMES: dict[str, list[str]] = {
    "transformer_engine": [],
    "transformer_engine.pytorch": ["Linear", "LayerNormLinear", "GroupedLinear"],
    "transformer_engine.pytorch.ops": ["Sequential"],
    "modelopt": [],
    "modelopt.torch": [],
    "modelopt.torch.distill": [],
    "modelopt.torch.distill.plugins": [],
    "modelopt.torch.distill.plugins.megatron": [],
    "modelopt.torch.opt": [],
    "modelopt.torch.opt.plugins": [
        "restore_modelopt_state",
        "save_modelopt_state",
        "save_sharded_modelopt_state",
    ],
    "modelopt.torch.quantization": [],
    "modelopt.torch.quantization.utils": [],
}

# Parts of Megatron Core that ask for Transformer Engine when they are imported.
ASKING = [
    "megatron.core.distributed",
    "megatron.core.models.gpt.gpt_model",
    "megatron.core.optimizer.distrib_optimizer",
    "megatron.core.pipeline_parallel",
]


def _stand_in(package: ModuleType) -> None:
    for name in ASKING:
        importlib.import_module(name)
    for name, contents in NAMES.items():
        if name in sys.modules:
            continue
        module = sys.modules[name] = ModuleType(name)
        setattr(module, "__version__", "0")  # older than all that Megatron knows how to use
        for attribute in contents:
            setattr(module, attribute, type(attribute, (Absent,), {}))
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    # Asked for each model that is saved. What is not installed has quantised nothing.
    setattr(sys.modules["modelopt.torch.quantization.utils"], "is_quantized", lambda model: False)


def install() -> None:
    """Makes it so when the first part of Megatron Core has been imported, as verl's engine does."""
    when_imported("megatron.core")(_stand_in)
    if not hasattr(typing, "override"):  # new in Python 3.12; a marker for type checkers
        import typing_extensions

        setattr(typing, "override", typing_extensions.override)
