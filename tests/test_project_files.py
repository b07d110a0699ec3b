"""The files beside the package: hooks, workflows, issue forms, citation."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from verl_msgrpo import __version__
from verl_msgrpo.doctor import SUPPORTED_PYTHON

ROOT = Path(__file__).parents[1]
YAML_FILES = [
    ROOT / ".pre-commit-config.yaml",
    *sorted((ROOT / ".github").rglob("*.yml")),
    ROOT / "CITATION.cff",
]
PYTHONS = [f"{major}.{minor}" for major, minor in SUPPORTED_PYTHON]


def load(name):
    return yaml.safe_load((ROOT / name).read_text())


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_yaml_can_be_read(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_hooks_have_the_versions_of_the_lock_file():
    lock = dict(
        re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "scripts/requirements-cpu.txt").read_text(), re.M)
    )
    (repo,) = load(".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    assert {"ruff", "ruff-format", "trailing-whitespace"} <= {hook["id"] for hook in repo["hooks"]}
    for hook in repo["hooks"]:
        assert {"id", "name", "entry", "language"} <= set(hook)
        (pin,) = hook["additional_dependencies"]
        package, version = pin.split("==")
        assert version == lock.get(package, version), pin
        assert package in lock or package == "pre-commit-hooks"


@pytest.mark.parametrize("name", ["ci", "unit"])
def test_workflows_call_what_there_is(name):
    workflow = load(f".github/workflows/{name}.yml")
    assert {"push", "pull_request"} <= set(workflow[True])  # YAML 1.1 reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert job["runs-on"]
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    last = job["steps"][-1]["run"]
    assert (ROOT / last.removeprefix("bash ").split()[0]).is_file()
    assert all(re.search(r"@v\d+$", step["uses"]) for step in job["steps"] if "uses" in step)


def test_ci_runs_everything_and_unit_runs_both_pythons():
    (ci,) = load(".github/workflows/ci.yml")["jobs"].values()
    assert ci["steps"][-1]["run"] == ".ci/run"
    (unit,) = load(".github/workflows/unit.yml")["jobs"].values()
    assert unit["strategy"]["matrix"]["python"] == PYTHONS
    assert unit["steps"][-1]["run"].endswith('-m "not e2e"')
    for job in (ci, unit):  # else set-up takes the first Python that it finds
        assert job["env"]["PYTHON"] == "python"


@pytest.mark.parametrize("script", sorted(ROOT.glob("scripts/*.sh")), ids=lambda path: path.name)
def test_scripts_name_what_there_is(script):
    for path in re.findall(r"(?<![\w/])((?:tests|scripts|examples)/[\w./-]+)", script.read_text()):
        assert (ROOT / path.rstrip(".")).exists(), path


def test_bug_form_asks_for_the_doctor():
    form = load(".github/ISSUE_TEMPLATE/bug.yml")
    assert {"name", "description", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert len({field["id"] for field in fields}) == len(fields)
    (doctor,) = (field for field in fields if field["id"] == "doctor")
    assert "verl-msgrpo doctor --json" in doctor["attributes"]["label"]
    assert doctor["validations"]["required"] is True


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {f"Programming Language :: Python :: {python}" for python in PYTHONS}
    assert named <= set(project["classifiers"])
    assert load("CITATION.cff")["version"] == __version__


def test_changelog_keeps_its_form():
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    kinds = set(re.findall(r"^### (\w+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for version in versions:
        assert f"\n[{version}]: https://" in text
