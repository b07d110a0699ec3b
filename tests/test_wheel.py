"""The wheel that users install: built, installed beside nothing else of ours, found by verl."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(out), str(ROOT)], check=True, timeout=300)
    (built,) = out.glob("*.whl")
    return built


def test_contents(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "verl_msgrpo/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    packages = {name.split("/")[0] for name in names if not name.split("/")[0].endswith("-info")}
    assert packages == {"verl_msgrpo"}
    sources = {
        str(path.relative_to(ROOT))
        for kind in ("*.py", "*.jinja", "*.yaml")
        for path in (ROOT / "verl_msgrpo").rglob(kind)
    }
    assert "verl_msgrpo/report/page.html.jinja" in sources
    assert sources <= set(names)


def test_installed_wheel_is_found_by_verl(wheel, tmp_path):
    pytest.importorskip("verl")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target"]
    subprocess.run([*command, str(tmp_path), str(wheel)], check=True, timeout=300)
    code = """
import verl, verl_msgrpo
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
print(verl_msgrpo.__file__)
print(get_adv_estimator_fn("ms_grpo").__module__)
"""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VERL_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    where, module = done.stdout.splitlines()[-2:]
    assert where.startswith(str(tmp_path))
    assert module == "verl_msgrpo.verl_plugin.estimator"
