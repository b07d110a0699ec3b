"""The checked versions: one place, and the same in all files that name them."""

import logging
import re
from pathlib import Path

import pytest

from verl_msgrpo import checked_versions
from verl_msgrpo.checked_versions import (
    CHECKED_VERSIONS,
    VERL_RANGE,
    installed_version,
    is_checked,
    verl_is_in_range,
    warn_if_unchecked,
)

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def forget_what_was_said():
    warn_if_unchecked.cache_clear()
    yield
    warn_if_unchecked.cache_clear()


@pytest.mark.parametrize("package", CHECKED_VERSIONS)
def test_this_environment_is_the_one_that_was_checked(package):
    version = installed_version(package)
    if version is None:
        pytest.skip("not installed")
    assert is_checked(package, version)


def test_files_name_the_same_versions():
    locks = "".join(path.read_text() for path in ROOT.glob("scripts/requirements-*.txt"))
    locked = dict(re.findall(r"^([\w-]+)==([\w.]+)", locks, re.MULTILINE))
    assert {name: locked[name] for name in CHECKED_VERSIONS} == CHECKED_VERSIONS
    assert f"verl=={CHECKED_VERSIONS['verl']}\n" in (ROOT / "scripts/setup_gpu.sh").read_text()
    assert f'"verl{VERL_RANGE}"' in (ROOT / "pyproject.toml").read_text()
    page = (ROOT / "docs/limits.md").read_text()
    assert f"| verl | {CHECKED_VERSIONS['verl']} |" in page
    for package in CHECKED_VERSIONS.keys() - {"verl"}:
        assert f"{package} {CHECKED_VERSIONS[package]}" in page


@pytest.mark.parametrize(
    ("version", "in_range"),
    [
        *(("0.9.1", True), ("0.9.1+cu130", True), ("0.9.7", True), ("0.9.10.dev0", True)),
        *(("0.9.0", False), ("0.9.1rc1", False), ("0.10.0rc1", False), ("0.10.1", False)),
        *(("0.8.0", False), ("main", False)),
    ],
)
def test_range_of_verl(version, in_range):
    pytest.importorskip("packaging")
    assert verl_is_in_range(version) == in_range


def test_a_warning_is_given_once(monkeypatch, caplog):
    monkeypatch.setattr(checked_versions, "installed_version", lambda name: "0.9.7")
    with caplog.at_level(logging.WARNING):
        warn_if_unchecked("verl")
        warn_if_unchecked("verl")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "checked with verl 0.9.1, and 0.9.7 is installed" in caplog.text


@pytest.mark.parametrize("version", [None, "0.9.1", "0.9.1+local"])
def test_nothing_is_said_of_the_checked_version(version, monkeypatch, caplog):
    monkeypatch.setattr(checked_versions, "installed_version", lambda name: version)
    warn_if_unchecked("verl")
    assert caplog.text == ""
