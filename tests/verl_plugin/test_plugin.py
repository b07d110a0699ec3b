"""The plugin in processes of its own: verl loads it, and it changes nothing that it should not."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("verl")

LOOKUP = """
import json, logging
import verl
from verl.trainer.ppo import core_algos
function = core_algos.ADV_ESTIMATOR_REGISTRY.get("ms_grpo")
print(json.dumps(function.__module__ if function else None))
"""


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VERL_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def last_json(done: subprocess.CompletedProcess[str]) -> object:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"VERL_USE_EXTERNAL_PLUGINS": "msgrpo"},
        {
            "VERL_USE_EXTERNAL_PLUGINS": "none",
            "VERL_USE_EXTERNAL_MODULES": "verl_msgrpo.verl_plugin",
        },
        {"VERL_USE_EXTERNAL_MODULES": "verl_msgrpo.verl_plugin,verl_msgrpo.verl_plugin"},
    ],
    ids=["entry point", "named entry point", "module only", "both, twice"],
)
def test_import_verl_is_enough(environment):
    done = run_python(LOOKUP, **environment)
    assert last_json(done) == "verl_msgrpo.verl_plugin.estimator"
    assert "could not hook" not in done.stderr


def test_ray_task_finds_the_estimator():
    code = """
import json, ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
@ray.remote
def look_up():
    import verl
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    return get_adv_estimator_fn("ms_grpo").__module__
found = ray.get(look_up.remote())
ray.shutdown()
print(json.dumps(found))
"""
    assert last_json(run_python(code)) == "verl_msgrpo.verl_plugin.estimator"


def test_a_broken_plugin_is_seen(tmp_path):
    """The estimator's own import fails; verl itself would log that at DEBUG only."""
    code = (
        """
import sys
sys.modules["verl_msgrpo.estimator.advantages"] = None
"""
        + LOOKUP
    )
    done = run_python(code)
    assert last_json(done) is None
    assert "verl-msgrpo could not hook into verl.trainer.ppo.core_algos" in done.stderr
    assert "verl_msgrpo.estimator.advantages" in done.stderr
    assert "verl-msgrpo doctor" in done.stderr


def test_another_verl_is_said_once_and_used():
    code = """
import importlib.metadata as metadata, json
version = metadata.version
metadata.version = lambda name: "0.9.7" if name == "verl" else version(name)
import verl
from verl.trainer.ppo.v1 import get_trainer_cls
from verl_msgrpo.verl_plugin import trainer
trainer.register_trainers()
print(json.dumps(issubclass(get_trainer_cls("sync"), trainer.MSGRPOTrainerMixin)))
"""
    for environment in ({}, {"VERL_PLATFORM": "cpu"}):
        done = run_python(code, **environment)
        assert last_json(done) is True
        assert done.stderr.count("checked with verl 0.9.1, and 0.9.7 is installed") == 1


STATE = """
import json, sys
import torch.distributed
import verl
import verl.utils.distributed
from verl.plugin.platform import get_platform
from verl.plugin.platform.platform_manager import PlatformRegistry
import os
print(json.dumps({
    "platform": type(get_platform()).__name__,
    "platforms": PlatformRegistry.registered_names(),
    "all_reduce": torch.distributed.all_reduce.__module__,
    "initialize": verl.utils.distributed.initialize_global_process_group_ray.__module__,
    "engine device": os.environ.get("VERL_ENGINE_DEVICE"),
    "distribution finders": [
        type(f).__name__ for f in sys.meta_path if type(f).__module__.startswith("verl_msgrpo")
    ],
}))
"""


def test_without_cpu_platform_nothing_but_registries_changes():
    """On a machine without an accelerator, as a cluster's head node is."""
    without = last_json(run_python(STATE, VERL_USE_EXTERNAL_PLUGINS="none"))
    assert last_json(run_python(STATE)) == without
    assert without["platform"] != "CPUPlatform"


def test_cpu_platform_is_opt_in():
    state = last_json(run_python(STATE, VERL_PLATFORM="cpu"))
    assert state["platform"] == "CPUPlatform"
    assert state["all_reduce"] == "torch.distributed.distributed_c10d"  # functools.wraps keeps it
    assert state["engine device"] == "cuda"
    assert state["distribution finders"] in ([], ["_VLLMFinder"])  # none where "vllm" is there


def test_import_of_the_core_needs_neither_verl_nor_ray():
    code = """
import json, sys
import torch, numpy
before = set(sys.modules)
import verl_msgrpo, verl_msgrpo.analysis, verl_msgrpo.estimator.metrics
for preset in (None, "paper"):
    verl_msgrpo.ms_grpo_advantages(torch.rand(2, 8), verl_msgrpo.MSGRPOConfig(preset=preset))
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = {"verl", "ray", "omegaconf", "transformers", "wrapt", "vllm", "scipy", "matplotlib"}
print(json.dumps(sorted(loaded & heavy)))
"""
    assert last_json(run_python(code)) == []
