"""`verl-msgrpo doctor` on this installation, and on broken ones."""

import json
import os
import subprocess
import sys

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


def test_the_probe_reports_what_fails(monkeypatch):
    output, error = doctor._run_probe("raise ImportError('no such thing')")
    assert output is None
    assert error == "ImportError: no such thing"
