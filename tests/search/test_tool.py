"""The tool's configuration, its YAML and its function form, loaded by verl itself."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
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


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(client_module, "_PROBE_PAUSE_S", 0.0)


def test_the_config_of_the_removed_class_is_taken():
    settings = read_settings(
        {
            "retrieval_service_url": URL,
            "num_workers": 120,
            "rate_limit": 50,
            "timeout": 30,
            "topk": 5,
            "enable_global_rate_limit": True,
            "type": "native",
        }
    )
    assert settings.client.url == URL
    assert settings.client.topk == 5
    assert settings.client.max_in_flight == 50
    assert settings.client.deadline == 90.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"retrieval_url": URL}, "unknown key retrieval_url; known: retrieval_service_url"),
        ({"retrieval_service_url": None}, f"_url: allowed is a URL like {URL}, got 'None'"),
        ({"retrieval_service_url": "127.0.0.1:8000"}, "got '127.0.0.1:8000'"),
        ({"retrieval_service_url": "http://host:99999/"}, "got 'http://host:99999/'"),
        ({"topk": 0}, "topk: allowed is an integer from 1 to 1000000000, got '0'"),
        ({"topk": 2.5}, "topk: allowed is an integer from 1 to 1000000000, got '2.5'"),
        ({"topk": 10**9 + 1}, "got '1000000001'"),
        ({"timeout": float("nan")}, "timeout: allowed is a number from 0.01 to 1e+09, got 'nan'"),
        ({"timeout": float("inf")}, "got 'inf'"),
        ({"timeout": "30"}, "got '30'"),
        ({"max_retries": True}, "max_retries: allowed is an integer from 0 to"),
        ({"max_observation_tokens": 5}, "max_observation_tokens: allowed is an integer from 32"),
        ({"probe": "no"}, "probe: allowed is true or false, got 'no'"),
    ],
)
def test_a_wrong_key_is_named(change, said):
    with pytest.raises(UserError) as error:
        read_settings({"retrieval_service_url": URL, **change})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


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


@pytest.mark.parametrize("mode", ["rubbish", "refused", "broken", "hang_up"])
def test_training_does_not_start_without_a_server_that_answers(server, mode):
    server.mode = mode
    config = {"retrieval_service_url": server.url, "timeout": 1.0}
    with pytest.raises(UserError, match=rf"^retrieval server {server.url}: .*verl-msgrpo serve"):
        SearchTool(config)
    assert len(server.bodies) == client_module.PROBE_ATTEMPTS
    SearchTool({**config, "probe": False})


def test_training_does_not_start_without_a_server():
    with retrieval_server() as server:
        url = server.url
    with pytest.raises(UserError, match="Connection refused"):
        SearchTool({"retrieval_service_url": url})


@contextlib.contextmanager
def raw_server(answer):
    """The URL of a port where every connection is given to `answer`, in a thread of its own."""

    def serve(connection):
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            answer(connection)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/retrieve"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200]
)
def test_a_port_that_is_not_http_is_told_in_a_line(answer):
    with (
        raw_server(lambda connection: connection.sendall(answer)) as url,
        pytest.raises(UserError, match="it does not speak HTTP; start it") as error,
    ):
        SearchTool({"retrieval_service_url": url, "timeout": 30.0})
    assert "\n" not in str(error.value)


def test_a_server_that_drips_is_given_up():
    """Each byte comes in time, the answer never: only the whole can be bounded."""
    over = threading.Event()

    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not over.wait(0.02):
            connection.sendall(b"x")

    with raw_server(drip) as url:
        with pytest.raises(UserError, match="no answer in time"):
            SearchTool({"retrieval_service_url": url, "timeout": 0.2})
        over.set()


@pytest.mark.parametrize("mebibytes", [2, 9])
def test_the_probe_reads_as_much_as_the_client(server, mebibytes):
    server.contents = ["x" * (mebibytes << 20)]
    config = {"retrieval_service_url": server.url}
    if mebibytes == 2:
        SearchTool(config)
    else:
        with pytest.raises(UserError, match="the answer is too large"):
            SearchTool(config)


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


@pytest.mark.parametrize("name", ["search_tool_agent", "search_r1_agent"])
def test_verl_makes_the_registered_loops(server, name, monkeypatch):
    monkeypatch.setattr(agent_loop, "_agent_loop_registry", {})
    register_agent_loops()
    register_agent_loops()  # a plugin may be loaded twice
    registry = agent_loop._agent_loop_registry
    # As an entry of rollout.agent.agent_loop_config_path, with one of our arguments.
    configured = OmegaConf.create({"name": name, **registry[name], "rollout_timeout": 0.5})
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
        assert loop._rollout_timeout == 0.5
        return outputs

    for output in asyncio.run(main()):
        assert output.extra_fields["search_ended"] == "finished"


def test_the_package_stays_light():
    code = (
        "import sys, verl_msgrpo.search; assert not {'verl', 'aiohttp', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
