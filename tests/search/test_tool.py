"""The tool's configuration, its YAML and its function form, loaded by verl itself."""

import asyncio
import subprocess
import sys
from pathlib import Path

import hydra
import pytest
import yaml
from omegaconf import OmegaConf
from verl.experimental.agent_loop import agent_loop
from verl.tools import function_tool as verl_function_tool
from verl.tools.tool_registry import load_all_tools

import verl_msgrpo.search
from tests.search.fakes import ScriptedModel, build_tokenizer, retrieval_server
from tests.search.rollouts import ANSWER, QUESTION, build, call, counts, rollout, text_of
from verl_msgrpo.errors import UserError
from verl_msgrpo.search import client as client_module
from verl_msgrpo.search import register_agent_loops
from verl_msgrpo.search.client import close_clients
from verl_msgrpo.search.settings import read_settings
from verl_msgrpo.search.tool import SearchTool

PACKAGE = Path(verl_msgrpo.search.__file__).parent
URL = "http://127.0.0.1:8000/retrieve"


@pytest.fixture
def server():
    with retrieval_server() as running:
        yield running


def test_the_yaml_says_the_defaults_and_takes_the_url_from_the_environment(server, monkeypatch):
    monkeypatch.setenv("RETRIEVAL_SERVICE_URL", server.url)
    (tool,) = load_all_tools(str(PACKAGE / "config" / "search_tool.yaml"), None)
    assert type(tool) is SearchTool is verl_msgrpo.search.SearchTool
    assert tool.name == "search"
    assert tool.searcher.settings == read_settings({"retrieval_service_url": server.url})
    monkeypatch.delenv("RETRIEVAL_SERVICE_URL")
    config = OmegaConf.load(PACKAGE / "config" / "search_tool.yaml").tools[0].config
    assert config.retrieval_service_url == URL


def test_a_config_of_the_removed_class_runs_with_the_class_name_changed(server, tmp_path):
    config = {
        "tools": [
            {
                "class_name": "verl_msgrpo.search.SearchTool",
                "config": {
                    "retrieval_service_url": server.url,
                    "num_workers": 120,
                    "rate_limit": 120,
                    "timeout": 30,
                    "type": "native",
                },
                "tool_schema": {
                    "type": "function",
                    "function": {
                        "name": "search",
                        "description": "Searches the web.",
                        "parameters": {
                            "type": "object",
                            "properties": {
                                "query_list": {"type": "array", "item": {"type": "string"}}
                            },
                            "required": ["query_list"],
                        },
                    },
                },
            }
        ]
    }
    path = tmp_path / "tools.yaml"
    path.write_text(yaml.safe_dump(config))
    (tool,) = load_all_tools(str(path), None)
    assert tool.tool_schema.function.description == "Searches the web."

    async def main():
        instance_id, _ = await tool.create()
        answer = await tool.execute(instance_id, {"query_list": ["dune"]})
        await tool.release(instance_id)
        await close_clients()
        return answer

    response, reward, _ = asyncio.run(main())
    assert response.text.startswith("Doc 1(Title: About dune) The text on dune, number 0.\n")
    assert reward == 0.0


def test_no_tool_is_made_without_a_server_that_answers(server, monkeypatch):
    monkeypatch.setattr(client_module, "_PROBE_PAUSE_S", 0.0)
    server.mode = "broken"
    config = {"retrieval_service_url": server.url}
    with pytest.raises(UserError, match="the search service answered 500"):
        SearchTool(config)
    asked = len(server.bodies)
    SearchTool({**config, "probe": False})
    assert len(server.bodies) == asked


def test_the_function_tool_file(server, monkeypatch):
    monkeypatch.setenv("RETRIEVAL_SERVICE_URL", server.url)
    monkeypatch.setattr(verl_function_tool, "FUNCTION_TOOL_REGISTRY", {})
    monkeypatch.setattr(verl_function_tool, "_LOADED_FUNCTION_TOOL_PATHS", {})
    tools = load_all_tools(None, str(PACKAGE / "function_tool.py"))
    assert [tool.name for tool in tools] == ["search"]
    tokenizer = build_tokenizer()
    turns = [call({"query": "dune"}), call({"query_list": None}), ANSWER]
    output = rollout(ScriptedModel(tokenizer, turns), tools)
    observed = text_of(output, tokenizer, mask=0)
    assert "Doc 1(Title: About dune)" in observed
    assert "Search error: the call holds no query." in observed
    assert counts(output) == {}


@pytest.mark.parametrize("name", ["RETRIEVAL_TOPK", "RETRIEVAL_MAX_BYTES"])
def test_a_wrong_environment_of_the_function_tool_is_named(name, monkeypatch):
    monkeypatch.setenv(name, "many")
    monkeypatch.setattr(verl_function_tool, "_LOADED_FUNCTION_TOOL_PATHS", {})
    with pytest.raises(UserError, match=f"{name}: allowed is an integer, got 'many'"):
        load_all_tools(None, str(PACKAGE / "function_tool.py"))


@pytest.mark.parametrize("name", ["search_tool_agent", "search_r1_agent"])
def test_verl_makes_the_registered_loops(server, name, monkeypatch):
    monkeypatch.setattr(agent_loop, "_agent_loop_registry", {})
    register_agent_loops()
    register_agent_loops()  # a plugin may be loaded twice
    registry = agent_loop._agent_loop_registry
    # As an entry of rollout.agent.agent_loop_config_path, with one of our arguments.
    configured = OmegaConf.create({"name": name, **registry[name], "rollout_timeout": 321.5})
    tool = SearchTool({"retrieval_service_url": server.url})
    model = ScriptedModel(build_tokenizer(), [ANSWER])

    async def main():
        outputs = []
        for entry in (registry[name], configured):
            loop = build(
                lambda entry=entry, **kwargs: hydra.utils.instantiate(config=entry, **kwargs),
                model,
                [tool],
            )
            outputs.append(await loop.run({}, raw_prompt=QUESTION))
        assert loop._rollout_timeout == 321.5
        return outputs

    for output in asyncio.run(main()):
        assert output.extra_fields["search_ended"] == "finished"


def test_the_package_stays_light():
    code = (
        "import sys, verl_msgrpo.search; assert not {'verl', 'aiohttp', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
