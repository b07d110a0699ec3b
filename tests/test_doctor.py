"""`verl-msgrpo doctor` on this installation, and on broken ones."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from verl_msgrpo import doctor

pytest.importorskip("verl")


def run_doctor(**environment: str) -> tuple[int, dict[str, dict]]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VERL_")}
    done = subprocess.run(
        [sys.executable, "-m", "verl_msgrpo.cli", "doctor", "--json"],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    findings = json.loads(done.stdout)
    return done.returncode, {finding["what"]: finding for finding in findings}


def test_a_healthy_installation():
    pytest.importorskip("vllm")
    code, findings = run_doctor(VERL_PLATFORM="cpu")
    assert [f for f in findings.values() if f["fix"]] == []
    assert code == 0
    assert findings["estimator ms_grpo"]["value"] == "registered by `import verl`"
    assert findings["verl's platform"]["value"] == "cpu"


def test_a01_plugins_switched_off():
    code, findings = run_doctor(VERL_USE_EXTERNAL_PLUGINS="none", VERL_PLATFORM="nvidia")
    assert code == 1
    assert "VERL_USE_EXTERNAL_PLUGINS=none" in findings["entry point"]["value"]
    assert "VERL_USE_EXTERNAL_PLUGINS=auto" in findings["entry point"]["fix"]
    assert findings["estimator ms_grpo"]["fix"].endswith("verl_msgrpo.verl_plugin")


@pytest.mark.parametrize("version", ["0.8.0", "0.10.1", None])
def test_verl_versions(version, monkeypatch):
    monkeypatch.setattr(doctor, "_installed", lambda name: version)
    finding = doctor._verl_version()
    assert finding.fix.startswith("pip install")


def test_what_each_part_lacks(monkeypatch):
    there = {"vllm": "0.24.0", "flash-attn": "2.8.3"}
    monkeypatch.setattr(doctor, "_installed", there.get)
    parts = {finding.what: finding for finding in doctor.check_parts()}
    assert not any(finding.fix for finding in parts.values())
    assert parts["FSDP2 on GPUs"].value == "ready"
    megatron = parts["Megatron on GPUs"].value
    assert megatron.startswith("lacks megatron-core, megatron-bridge, transformer-engine: ")
    assert parts["programs of models"].value


def test_the_probe_reports_what_fails(monkeypatch):
    output, error = doctor._run_probe("raise ImportError('no such thing')")
    assert output is None
    assert error == "ImportError: no such thing"


def test_a_hook_that_fails_is_seen(tmp_path):
    """The plugin itself warns and goes on, so doctor has to name what is missing."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['verl_msgrpo.search.search_r1_agent'] = None\n"
    )
    code, findings = run_doctor(VERL_PLATFORM="cpu", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert "search_r1_agent" in findings["agent loops"]["value"]
    assert findings["estimator ms_grpo"]["fix"] is None


def test_no_accelerator_is_no_problem_in_itself(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (finding,) = doctor.check_hardware()
    assert finding.fix is None
    assert "VERL_PLATFORM=cpu" in finding.value


def test_every_extra_that_is_named_exists():
    tomllib = pytest.importorskip("tomllib")
    root = Path(doctor.__file__).parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    sources = [*root.glob("verl_msgrpo/**/*.py"), *root.glob("**/README.md")]
    named = {
        extra
        for path in sources
        for names in re.findall(r"(?:verl-msgrpo|\.)\[([a-z, -]+)\]", path.read_text())
        for extra in names.split(",")
    }
    assert named
    assert {extra.strip() for extra in named} <= set(extras)
