"""Two sound launches, Megatron and FSDP2, and a way to check them with a fault added."""

import pickle
import re
import shutil
import textwrap
from collections import namedtuple
from dataclasses import dataclass

import pytest
from omegaconf import OmegaConf

from tests.preflight.recipes import overrides_of, write_data
from tests.search.fakes import retrieval_server
from verl_msgrpo.preflight import compose, names, reward, services
from verl_msgrpo.preflight.checks import check_config

Usage = namedtuple("Usage", "total used free")
TERABYTE = 2**40


@pytest.fixture(autouse=True)
def patient_machine(monkeypatch):
    """A large disk, and time for what a busy machine does slowly."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(4 * TERABYTE, 0, 4 * TERABYTE))
    monkeypatch.setattr(reward, "TRIAL_LIMIT_S", 120.0)
    monkeypatch.setattr(services, "PROBE_LIMIT_S", 60.0)


MEGATRON_SOURCES = {
    "megatron.core/model_parallel_config.py": """
        class ModelParallelConfig:
            sequence_parallel: bool = False
        """,
    "megatron.core/transformer/transformer_config.py": """
        @dataclass
        class TransformerConfig(ModelParallelConfig):
            num_layers: int = 0
            moe_router_topk: int | list[int] = 2
            def __post_init__(self): local: int = 0
        """,
    "megatron.bridge/models/gpt_provider.py": """
        class GPTModelProvider(TransformerConfig):
            vocab_size: int | None = None
        """,
}


@pytest.fixture(scope="session")
def megatron_folder(tmp_path_factory):
    """Source files that declare a few of Megatron's options, none of which verl sets itself."""
    folder = tmp_path_factory.mktemp("site-packages")
    for name, source in MEGATRON_SOURCES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
    return folder


@pytest.fixture(autouse=True)
def installed_megatron(monkeypatch, megatron_folder):
    monkeypatch.setattr(names, "_folders", lambda package: [str(megatron_folder / package)])


@pytest.fixture(scope="session")
def server():
    with retrieval_server() as running:
        yield running


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    return write_data("search_hotpotqa", tmp_path_factory.mktemp("hotpotqa"))


@dataclass
class SoundLaunch:
    """A command line, composed, its interpolations not yet resolved."""

    overrides: list
    composed: bytes
    """The pickled configuration: far faster to copy than by deepcopy."""

    def check(self, *faults, card=None):
        """What is found with further overrides, applied by Hydra as at the end of the command."""
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra.core.override_parser.overrides_parser import OverridesParser

        config = pickle.loads(self.composed)
        parsed = OverridesParser.create().parse_overrides(list(faults))
        ConfigLoaderImpl._apply_overrides_to_config(parsed, config)
        OmegaConf.resolve(config)
        return check_config(config, card)


@pytest.fixture(scope="session")
def launches(tmp_path_factory, server, data_dir):
    """{"megatron", "fsdp"} -> SoundLaunch of the search recipe."""
    folder = tmp_path_factory.mktemp("launches")
    found = {}
    for backend in ("megatron", "fsdp"):
        overrides = overrides_of(
            "search_hotpotqa",
            folder,
            BACKEND=backend,
            DATA_DIR=data_dir,
            OUTPUT_DIR=folder / "out",
            RETRIEVAL_SERVICE_URL=server.url,
        )
        found[backend] = SoundLaunch(overrides, pickle.dumps(compose._compose(overrides)))
    return found


def mended(faults, problem):
    """The faults with those that the fix speaks of replaced by it; None if it is no override."""
    parts = problem.fix.split(" ")
    if not all(re.fullmatch(r"\+?[\w.]+=\S+", part) for part in parts) or "<" in problem.fix:
        return None
    keys = {part.lstrip("+").partition("=")[0] for part in parts}
    misspelt = re.search(
        r"(\w+)(?:: unknown| is not a setting|: the installed Megatron)",
        problem.message,
    )

    def stays(fault):
        key = fault.lstrip("+").partition("=")[0]
        return key not in keys and not (misspelt and key.endswith(f".{misspelt.group(1)}"))

    return [*filter(stays, faults), *parts]
