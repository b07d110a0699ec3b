"""The patches with which Megatron runs on the CPU do nothing where Megatron is not imported."""

from tests.megatron.conftest import run_python

PROGRAM = """
import sys
import torch
before = torch.Tensor.cuda, torch.Tensor.type, torch.nn.Module.cuda, torch.zeros
import verl
assert "local_megatron" in sys.modules
after = torch.Tensor.cuda, torch.Tensor.type, torch.nn.Module.cuda, torch.zeros
assert after == before
assert "megatron" not in sys.modules and "transformer_engine" not in sys.modules
print("unpatched")
"""


def test_nothing_happens_before_megatron_is_imported(cpu_environment):
    environment = {**cpu_environment, "VERL_USE_EXTERNAL_MODULES": "local_megatron"}
    assert "unpatched" in run_python(["-c", PROGRAM], environment)
