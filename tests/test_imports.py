"""Data flows one way: which package may import which, and that nothing goes round in circles."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

from verl_msgrpo import cli

PACKAGE = Path(__file__).parents[1] / "verl_msgrpo"

# package or top-level module -> what of ours it may import, beside itself
MAY_IMPORT = {
    "__init__": {"estimator"},
    "errors": set(),
    "checked_versions": set(),
    "common": {"errors"},
    "estimator": {"common"},
    "cpu_platform": {"checked_versions"},
    "rewards": {"__init__", "common", "errors"},  # a worker starts where the package lies
    "search": {"__init__", "common", "errors"},
    "tasks": {"common", "errors", "rewards"},
    "verl_plugin": {
        "checked_versions",
        "common",
        "cpu_platform",
        "errors",
        "estimator",
        "search",
    },
    "evaluation": {"common", "errors"},
    "report": {"common", "errors", "evaluation", "rewards", "verl_plugin"},
    "analysis": {"common", "estimator", "evaluation"},
    "preflight": {
        "checked_versions",
        "common",
        "errors",
        "estimator",
        "rewards",
        "search",
        "tasks",
        "verl_plugin",
    },
    "doctor": {"__init__", "checked_versions", "common", "cpu_platform", "errors", "rewards"},
    "cli": {"__init__", "errors"},
}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


@functools.cache
def imports(name: str, everywhere: bool) -> frozenset[str]:
    """Modules of ours that a module imports: anywhere, or only while it is loaded itself."""
    tree = ast.parse(MODULES[name].read_text())
    found = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                found.add(module if module in MODULES else str(node.module))
        is_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        if everywhere or not is_later:
            waiting += ast.iter_child_nodes(node)
    return frozenset(module for module in found if module in MODULES) - {name}


def home(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_with_the_flow(name):
    homes = {home(module) for module in imports(name, everywhere=True)} - {home(name)}
    assert homes <= MAY_IMPORT[home(name)]


def test_no_import_cycle():
    graph = {name: imports(name, everywhere=False) for name in MODULES}
    # A package is loaded before its modules; that a module of it is imported by it is the rule.
    graphlib.TopologicalSorter(graph).prepare()


def test_commands_are_imported_by_nobody():
    commands = {module for module, _ in cli.COMMANDS.values()}
    for name in MODULES:
        assert not imports(name, everywhere=True) & commands - {name}, name


def test_metrics_are_a_leaf_of_the_estimator():
    for name in MODULES:
        if home(name) == "estimator":
            assert "verl_msgrpo.estimator.metrics" not in imports(name, everywhere=True)
