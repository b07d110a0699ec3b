"""Runs of verl's Megatron engine, each started once for all tests that look at it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.megatron.problem import CASES, write_batch, write_model

HERE = Path(__file__).parent
# Not in site-packages: verl imports Megatron wherever it finds it, in runs that use nothing of it.
PACKAGES = Path(os.environ.get("MEGATRON_PACKAGES", Path(sys.prefix) / "megatron"))


@pytest.fixture(scope="session")
def cpu_environment() -> dict[str, str]:
    """The environment in which a process runs verl on the CPU."""
    settings = {"VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **settings}


@pytest.fixture(scope="session")
def megatron_environment(cpu_environment) -> dict[str, str]:
    """The same, with Megatron and what lets it run there."""
    if not (PACKAGES / "megatron/bridge").is_dir():
        pytest.skip(f"no Megatron in {PACKAGES}: bash scripts/setup_megatron.sh")
    return {
        **cpu_environment,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(PACKAGES)]),
        "VERL_USE_EXTERNAL_MODULES": "local_megatron",
    }


def launch(worker: list[str], ranks: int, environment: dict[str, str]) -> None:
    """Runs a script with its arguments in `ranks` processes."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", *torchrun, *worker],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=900)
    except subprocess.TimeoutExpired:
        process.terminate()  # not kill: torchrun then ends its workers, which would go on
        output, _ = process.communicate(timeout=120)
        pytest.fail(f"not done after 900 s: {worker}\n{output}")
    assert process.returncode == 0, output


class Engines:
    """A folder with the problem; `run` adds a parallel layout's results to it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def run(self, tp: int, pp: int) -> Path:
        """Returns the folder with one folder for each case."""
        out = self.folder / f"tp{tp}-pp{pp}"
        for name in CASES:
            (out / name).mkdir(parents=True)
        worker = [str(HERE / "engine_worker.py"), str(self.folder), f"--tp={tp}", f"--pp={pp}"]
        launch(worker, ranks=tp * pp, environment=self.environment)
        return out


@pytest.fixture(scope="session")
def engines(tmp_path_factory, megatron_environment) -> Engines:
    folder = tmp_path_factory.mktemp("megatron")
    for name, case in CASES.items():
        write_model(folder / name, case.tied)
    write_batch(folder / "batch.safetensors")
    return Engines(folder, megatron_environment)


@pytest.fixture(scope="session")
def tp1(engines) -> Path:
    return engines.run(tp=1, pp=1)


@pytest.fixture(scope="session")
def tp2(engines) -> Path:
    return engines.run(tp=2, pp=1)


@pytest.fixture(scope="session")
def pp2(engines) -> Path:
    return engines.run(tp=1, pp=2)
