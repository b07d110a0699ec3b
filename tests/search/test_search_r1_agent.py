"""`search_r1_agent`: Search-R1's text protocol, with scripted turns and a real server."""

import asyncio

import pytest

from tests.search.fakes import (
    OTHER_TEMPLATE,
    QWEN_TEMPLATE,
    ScriptedModel,
    build_tokenizer,
    spelled,
)
from tests.search.rollouts import LateClock, counts, rollout, search_tool, text_of
from verl_msgrpo.errors import UserError
from verl_msgrpo.search import generation
from verl_msgrpo.search import tool as tool_module
from verl_msgrpo.search.search_r1_agent import SearchR1AgentLoop

SEARCH = "<think>I need the author.</think> <search> Dune </search>"
ANSWER = "<think>Here.</think><answer> Frank Herbert </answer>"
INFORMATION = "\n\n<information>Doc 1(Title: Dune) A novel by Frank Herbert.\n</information>\n\n"


def r1(model, tools, **settings):
    return rollout(model, tools, loop_class=SearchR1AgentLoop, **settings)


@pytest.mark.parametrize("family", ["qwen2", "llama", "no template"])
@pytest.mark.parametrize("obeys_stops", [True, False])
def test_replay_of_a_rollout(server, family, obeys_stops):
    tokenizer = build_tokenizer(QWEN_TEMPLATE if family == "qwen2" else OTHER_TEMPLATE)
    if family == "no template":
        tokenizer.chat_template = None
    scripts = [
        spelled(tokenizer, SEARCH) + ([] if obeys_stops else tokenizer.encode(" Paris")),
        tokenizer.encode(ANSWER) + ([] if obeys_stops else tokenizer.encode(" <answer>Paris")),
    ]
    model = ScriptedModel(tokenizer, scripts, obeys_stops)
    output = r1(model, [search_tool(server)], model_type=family)
    assert text_of(output, tokenizer) == SEARCH + INFORMATION + ANSWER
    assert text_of(output, tokenizer, mask=1) == SEARCH + ANSWER
    assert text_of(output, tokenizer, mask=0) == INFORMATION
    first = len(spelled(tokenizer, SEARCH))
    assert output.response_ids[:first] == spelled(tokenizer, SEARCH)
    assert model.calls[1][0][: len(output.prompt_ids) + first] == (
        output.prompt_ids + output.response_ids[:first]
    )
    second = len(tokenizer.encode(ANSWER))
    assert output.response_logprobs == [
        *(-1 - i / 1000 for i in range(first)),
        *([0.0] * (len(output.response_ids) - first - second)),
        *(-2 - i / 1000 for i in range(second)),
    ]
    assert output.extra_fields["search_ended"] == "finished"
    assert counts(output) == {"searches": 1}
    assert server.asked[1:] == ["Dune"]
    assert output.num_turns == 4


def test_stops_are_added_to_the_users_own(server, tokenizer):
    model = ScriptedModel(tokenizer, [ANSWER])
    r1(model, [search_tool(server)])
    assert model.calls[0][1]["stop"] == ["\n\nUser:", "</search>", "</answer>"]


@pytest.mark.parametrize(
    "turn", ["<search> </search>", "no opening </search>", "<search> never closed<|im_end|>"]
)
def test_a_malformed_search_is_answered_and_counted(server, tokenizer, turn):
    model = ScriptedModel(tokenizer, [turn, SEARCH, ANSWER])
    output = r1(model, [search_tool(server)])
    observed = text_of(output, tokenizer, mask=0)
    assert observed.startswith("\n\n<information>Search error: ")
    assert observed.endswith(INFORMATION)
    assert counts(output) == {"searches": 1, "malformed": 1}


def test_an_end_without_an_answer_ends_the_rollout(server, tokenizer):
    output = r1(ScriptedModel(tokenizer, ["I do not know.<|im_end|>"]), [search_tool(server)])
    assert output.extra_fields["search_ended"] == "finished"
    assert counts(output) == {}


def test_the_innermost_search_counts(server, tokenizer):
    turn = "I could <search> or not. <search>Dune</search>"
    r1(ScriptedModel(tokenizer, [turn, ANSWER]), [search_tool(server)])
    assert server.asked[1:] == ["Dune"]


def test_room(server, tokenizer):
    server.contents = ["Dune\n" + "x" * 300]
    length = len(tokenizer.encode(SEARCH)) + 100
    model = ScriptedModel(tokenizer, [SEARCH, ANSWER])
    output = r1(model, [search_tool(server)], response_length=length)
    assert text_of(output, tokenizer) == SEARCH
    assert output.extra_fields["search_ended"] == "truncated"
    output = r1(ScriptedModel(tokenizer, ["x" * 900]), [search_tool(server)], response_length=50)
    assert len(output.response_ids) == 50
    assert output.extra_fields["search_ended"] == "truncated"


def test_the_search_in_the_last_turn_is_not_run(server, tokenizer):
    model = ScriptedModel(tokenizer, [SEARCH])
    output = r1(model, [search_tool(server)], max_assistant_turns=2)
    assert len(model.calls) == 2
    assert counts(output) == {"searches": 1}
    assert output.extra_fields["search_ended"] == "turn_limit"
    assert output.num_turns == 2 + 1 + 1


def test_a_failed_search_is_told_and_the_rollout_goes_on(server, tokenizer):
    tool = search_tool(server)
    server.mode = "overloaded"
    output = r1(ScriptedModel(tokenizer, [SEARCH, ANSWER]), [tool])
    assert "<information>Search error: the search service is overloaded.</information>" in (
        text_of(output, tokenizer, mask=0)
    )
    assert counts(output) == {"searches": 1, "failed": 1}


def test_an_observation_that_cannot_be_rendered_is_told(server, tokenizer, monkeypatch):
    def render(*_):
        raise RuntimeError("Already borrowed")  # of a fast tokenizer in several threads

    monkeypatch.setattr(tool_module, "render", render)
    output = r1(ScriptedModel(tokenizer, [SEARCH, ANSWER]), [search_tool(server)])
    assert text_of(output, tokenizer, mask=0) == (
        "\n\n<information>Search error: internal error (RuntimeError).</information>\n\n"
    )
    assert counts(output) == {"searches": 1, "failed": 1}
    assert output.extra_fields["search_ended"] == "finished"


def test_deadlines(server, tokenizer, monkeypatch):
    clock = LateClock()
    monkeypatch.setattr(generation, "time", clock)

    async def late():
        clock.ahead_s += 3600 - 0.2
        return SEARCH

    tool = search_tool(server)
    server.hold()
    model = ScriptedModel(tokenizer, [late, ANSWER])
    output = r1(model, [tool], options={"rollout_timeout": 3600.0})
    assert output.extra_fields["search_ended"] == "deadline"
    assert text_of(output, tokenizer) == SEARCH
    hangs = ScriptedModel(tokenizer, [lambda: asyncio.sleep(3600)])
    output = r1(hangs, [tool], options={"rollout_timeout": 0.2})
    assert output.extra_fields["search_ended"] == "deadline"
    assert output.response_mask == [0]


def test_other_tags(server, tokenizer):
    tags = {"search_tag": "ask", "information_tag": "found", "answer_tag": "final"}
    model = ScriptedModel(tokenizer, ["<ask>Dune</ask>", "<final>x</final>"])
    output = r1(model, [search_tool(server)], options=tags)
    assert text_of(output, tokenizer, mask=0).startswith("\n\n<found>Doc 1")
    assert model.calls[0][1]["stop"][1:] == ["</ask>", "</final>"]


def test_what_cannot_work_is_refused(server, tokenizer):
    model = ScriptedModel(tokenizer, [ANSWER])
    with pytest.raises(UserError, match="tool_config_path"):
        r1(model, [])
    with pytest.raises(UserError, match=r"search_tag: allowed is .*, got '<search>'"):
        r1(model, [search_tool(server)], options={"search_tag": "<search>"})
