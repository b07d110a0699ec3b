"""Runs the agent loops as verl's worker does, with a scripted model."""

import asyncio
import json
import time

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from verl_msgrpo.search.client import close_clients
from verl_msgrpo.search.search_tool_agent import SearchToolAgentLoop
from verl_msgrpo.search.tool import SearchTool

QUESTION = [{"role": "user", "content": "Who wrote Dune?"}]
ANSWER = "<answer>Frank Herbert</answer><|im_end|>"


def call(query="Dune", name="search"):
    arguments = {"query_list": [query]} if isinstance(query, str) else query
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def search_tool(server, **config):
    config = {"max_retries": 0, "cache_size": 0, **config}
    return SearchTool({"retrieval_service_url": server.url, **config})


class LateClock:
    """In the place of the module `time`: a clock that can be put forward.

    A deadline passes when a test says so, not when the machine has been busy for long enough.
    """

    def __init__(self):
        self.ahead_s = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead_s


def build(loop_class, model, tools, *, model_type="qwen2", options=None, **rollout):
    multi_turn = {
        "max_user_turns": None,
        "max_assistant_turns": None,
        "max_parallel_calls": 1,
        "max_tool_response_length": 4000,
        "tool_response_truncate_side": "middle",
        "format": "hermes",
    }
    settings = {
        "name": "vllm",
        "prompt_length": 200,
        "response_length": 2000,
        "max_model_len": None,
        "full_determinism": False,
    }
    for key, value in rollout.items():
        (multi_turn if key in multi_turn else settings)[key] = value
    config = {"actor_rollout_ref": {"rollout": {**settings, "multi_turn": multi_turn}}}
    return loop_class(
        trainer_config=DictConfigWrap(OmegaConf.create(config)),
        server_manager=model,
        tokenizer=model.tokenizer,
        processor=None,
        dataset_cls=object,
        data_config=DictConfigWrap(OmegaConf.create({})),
        hf_model_type=model_type,
        tools=ToolListWrap(tools),
        **(options or {}),
    )


def rollout(model, tools, loop_class=SearchToolAgentLoop, row=None, **settings):
    """Runs one rollout and checks what has to hold for every one."""

    async def main():
        # verl's loop takes its event loop when it is made.
        loop = build(loop_class, model, tools, **settings)
        params = {"temperature": 1.0, "logprobs": True, "stop": ["\n\nUser:"]}
        try:
            return await loop.run(params, raw_prompt=QUESTION, global_steps=4, **(row or {}))
        finally:
            await close_clients()

    output = asyncio.run(main())
    assert len(output.response_ids) == len(output.response_mask)
    if output.response_logprobs is not None:
        assert len(output.response_logprobs) == len(output.response_ids)
    assert 0 < len(output.response_ids) <= settings.get("response_length", 2000)
    output.as_dict()  # what verl sends to the trainer
    return output


def text_of(output, tokenizer, mask=None):
    ids = zip(output.response_ids, output.response_mask, strict=True)
    return tokenizer.decode([token for token, value in ids if mask is None or value == mask])


def counts(output):
    """Only the counts that are not zero."""
    found = output.extra_fields["search"]
    names = ("searches", "failed", "empty", "cached", "repeated", "malformed")
    return {name: found[name] for name in names if found[name]}


def rollout_stock(model, tools, **settings):
    async def main():
        loop = build(ToolAgentLoop, model, tools, response_length=9000, **settings)
        params = {"logprobs": True, "max_tokens": 500}
        try:
            return await loop.run(params, raw_prompt=QUESTION)
        finally:
            await close_clients()

    return asyncio.run(main())
