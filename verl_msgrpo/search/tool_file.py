"""verl's tool file (`multi_turn.tool_config_path`): which of its tools are ours."""

from typing import cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_msgrpo.errors import UserError

SEARCH_TOOL_NAMES = ("verl_msgrpo.search.SearchTool", "verl_msgrpo.search.tool.SearchTool")


def search_tool_configs(path: str) -> list[dict[str, object]]:
    """The `config` of each SearchTool, with the environment's values filled in.

    Subclasses of SearchTool are left out: to know one, their module would have to be imported.

    Raises:
        UserError: the file cannot be used, in one line.
    """
    try:
        return _configs(path)
    except OSError as error:
        reason = str(error.strerror or error)
    except (ValueError, YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
    raise UserError(f"tool_config_path {path}: {reason}")


def _configs(path: str) -> list[dict[str, object]]:
    content = OmegaConf.load(path)
    tools = content.get("tools") if isinstance(content, DictConfig) else None
    if not isinstance(tools, ListConfig):
        raise ValueError("it needs a list under `tools:`")
    found = []
    for number, tool in enumerate(tools, 1):
        name = tool.get("class_name") if isinstance(tool, DictConfig) else None
        settings = tool.get("config") if isinstance(tool, DictConfig) else None
        if not isinstance(name, str) or not isinstance(settings, DictConfig):
            raise ValueError(f"tool {number} needs `class_name:` and `config:`")
        if name in SEARCH_TOOL_NAMES:
            found.append(cast(dict[str, object], OmegaConf.to_container(settings, resolve=True)))
    return found
