"""Runs of verl's Megatron engine, started once for all tests that look at them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.megatron.problem import CASES, LAYOUTS, write_batch, write_model

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WHOLE_TREE = ROOT / "scripts/whole_tree.py"
# What takes a minute or two on two cores that do nothing else, and this long when it hangs.
LIMIT_S = 3600
END_S = 300
# Not in site-packages: verl imports Megatron wherever it finds it, in runs that use nothing of it.
PACKAGES = Path(os.environ.get("MEGATRON_PACKAGES", Path(sys.prefix) / "megatron"))


@pytest.fixture(scope="session")
def cpu_environment() -> dict[str, str]:
    """The environment in which a process runs verl on the CPU."""
    settings = {"VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT)]), **settings}
    environment.pop("RAY_ADDRESS", None)  # of another cluster
    return environment


@pytest.fixture(scope="session")
def megatron_environment(cpu_environment) -> dict[str, str]:
    """The same, with Megatron and what lets it run there."""
    if not (PACKAGES / "megatron/bridge").is_dir():
        pytest.skip(f"no Megatron in {PACKAGES}: bash scripts/setup_megatron.sh")
    return {
        **cpu_environment,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT), str(PACKAGES)]),
        "VERL_USE_EXTERNAL_MODULES": "local_megatron",
    }


def run_python(arguments: list[str], environment: dict[str, str], cwd: Path | None = None) -> str:
    """Runs Python to its end and returns what it printed; fails on errors and when it hangs.

    It ends with all that it has started, Ray's processes too.
    """
    process = subprocess.Popen(
        [sys.executable, str(WHOLE_TREE), sys.executable, "-W", "ignore", *arguments],
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate()
        pytest.fail(f"not done after {LIMIT_S} s: {arguments}\n{output}")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=END_S)
    assert process.returncode == 0, output
    return output


def run_worker(name: str, folder: Path, environment: dict[str, str]) -> None:
    """Runs a worker of this folder on the problem in `folder`."""
    run_python([str(HERE / "ranks.py"), name, str(folder)], environment)


@pytest.fixture(scope="session")
def engines(tmp_path_factory, megatron_environment) -> Path:
    """The folder with the problem and, for each layout and case, what engine_worker.py wrote."""
    folder = tmp_path_factory.mktemp("megatron")
    for name, case in CASES.items():
        write_model(folder / name, case.tied)
        for layout in LAYOUTS:
            (folder / layout / name).mkdir(parents=True)
    write_batch(folder / "batch.safetensors")
    run_worker("engine_worker", folder, megatron_environment)
    return folder
