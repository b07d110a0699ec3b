"""The packages of the extra `report`, imported where they are first used."""

import importlib
from types import ModuleType

from verl_msgrpo.errors import UserError


def from_extra(module: str) -> ModuleType:
    """Imports a module of jinja2, matplotlib or scipy.

    Raises:
        UserError: it is missing.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise UserError(f"needs {package}: pip install 'verl-msgrpo[report]'") from None
