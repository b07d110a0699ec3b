"""Lets verl's Megatron engine run on the CPU, for tests and for nothing else.

Loaded by `VERL_USE_EXTERNAL_MODULES=local_megatron` with the folder above on PYTHONPATH, which only
the tests do: it is no part of the installed package. Nothing happens until a process imports
Megatron. Then:

- `device.py`: Megatron's modules find the CPU where they ask torch for a CUDA device;
- `absent.py`: stand-ins for the few names that megatron-bridge imports from packages for GPUs;
- `layers.py`: the transformer layer in plain torch, with the parameter names of the layer that
  Megatron takes from Transformer Engine;
- `adam.py`: checkpoints of torch's Adam, which Megatron uses where the GPU's Adams are not there.

What runs is therefore verl's engine, Megatron's parallelism, pipeline schedule, distributed
optimizer and checkpoints, and megatron-bridge's conversion; not the kernels.
"""

from types import ModuleType

from wrapt import when_imported

from local_megatron import absent, adam, device

device.install()
absent.install()
when_imported("megatron.core.optimizer.distrib_optimizer")(adam.make_resumable)


@when_imported("megatron.bridge.models.gpt_provider")
def _use_local_layers(gpt_provider: ModuleType) -> None:
    from megatron.core.transformer import transformer_block

    from local_megatron.layers import LocalRMSNorm, local_layer_spec

    setattr(gpt_provider, "transformer_engine_layer_spec", local_layer_spec)
    setattr(transformer_block, "LayerNormImpl", LocalRMSNorm)
