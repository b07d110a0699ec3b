"""Keeps the weights of vLLM's CPU linear layers, so that a weight update finds them.

After loading, vLLM's CPU build packs each linear layer's weight for oneDNN and drops the original.
verl writes new weights after every training step, through the loader that went with the original.
"""

from types import ModuleType

import torch


def keep_weights(layers_utils: ModuleType) -> None:
    """Makes `vllm.model_executor.layers.utils` multiply by the weight itself."""
    if not hasattr(layers_utils, "dispatch_cpu_unquantized_gemm"):
        raise AttributeError("vllm has no dispatch_cpu_unquantized_gemm: not a version we checked")

    def dispatch_to_torch(layer: torch.nn.Module, remove_weight: bool) -> None:
        setattr(layer, "cpu_linear", torch.nn.functional.linear)

    setattr(layers_utils, "dispatch_cpu_unquantized_gemm", dispatch_to_torch)
