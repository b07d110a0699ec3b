import asyncio
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reward_fns.loading import BROKEN_GOLDS, BROKEN_SOLUTIONS, check_shape, load
from verl_msgrpo.rewards import search_qa
from verl_msgrpo.rewards.outcome import Alarm

KEYS = ["score", "acc", "em", "f1", "sub_em", "format_ok", "truncated", "timeout", "error", "pred"]
compute_score = load("search_qa")


def qa(solution, gold, extra_info=None, **options):
    reward = compute_score("hotpot_qa", solution, gold, extra_info, **options)
    check_shape(reward, KEYS)
    return reward


@pytest.mark.parametrize(
    ("gold", "solution", "em", "f1"),
    [
        pytest.param("beatles", "<answer>The Beatles!</answer>", 1, 1, id="article-and-mark"),
        pytest.param("Paris", "<answer>Paris, France</answer>", 0, 2 / 3, id="more-words"),
        pytest.param("yes", "<answer>yes, it is</answer>", 0, 0, id="yes-in-part"),
        pytest.param("no", "<answer>There is nothing</answer>", 0, 0, id="no-in-a-word"),
        pytest.param("A", "<answer>A</answer>", 1, 1, id="article-alone"),
        pytest.param("3.14", "<answer>(3.14).</answer>", 1, 1, id="decimal-point"),
        pytest.param("3.14", "<answer>314</answer>", 0, 0, id="without-point"),
        pytest.param(["NYC", "New York City"], "<answer>nyc</answer>", 1, 1, id="several"),
        pytest.param(np.array(["NYC", "New York City"]), "<answer>nyc</answer>", 1, 1, id="array"),
        pytest.param({"target": ["NYC"]}, "<answer>nyc</answer>", 1, 1, id="search-r1"),
        pytest.param(
            "Paris", "<answer>Rome</answer> no <answer>Paris</answer>", 1, 1, id="last-tag"
        ),
        pytest.param(
            "Paris",
            "<tool_response>x <answer>Paris</answer> y</tool_response> I don't know",
            0,
            0,
            id="observation",
        ),
        pytest.param("Paris", "Paris", 0, 0, id="no-tag"),
        pytest.param("Paris", "<answer>Paris", 0, 0, id="left-open"),
        pytest.param("Paris", "<answer><answer>Paris</answer>", 1, 1, id="nested"),
        pytest.param("Paris", "<answer>Paris</answer>" * 12, 0, 0, id="too-many-tags"),
        pytest.param("Paris", "<answer>Paris</answer>", 1, 1, id="one-tag"),
        # The same kinds in other clothes.
        pytest.param("yes", "<answer>Yes.</answer>", 1, 1, id="yes"),
        pytest.param("yes", "<answer>no</answer>", 0, 0, id="yes-no"),
        pytest.param("The Who", "<answer>the who</answer>", 1, 1, id="band"),
        pytest.param("The The", "<answer>The The</answer>", 1, 1, id="only-articles"),
        pytest.param("?", "<answer>?</answer>", 1, 1, id="only-punctuation"),
        pytest.param("?", "<answer>!</answer>", 0, 0, id="other-punctuation"),
        pytest.param("1939-1945", "<answer>1939–1945</answer>", 1, 1, id="en-dash"),
        pytest.param("1939-1945", "<answer>19391945</answer>", 0, 0, id="no-dash"),
        pytest.param("Coca-Cola", "<answer>Coca‑Cola</answer>", 1, 1, id="hyphen"),
        pytest.param("1,000", "<answer>1000</answer>", 1, 1, id="thousands"),
        pytest.param("-5", "<answer>5</answer>", 0, 0, id="sign"),
        pytest.param("-5", "<answer>−5 </answer>", 1, 1, id="minus"),
        pytest.param("It's", "<answer>It’s</answer>", 1, 1, id="curly"),
        pytest.param("Café", "<answer>Cafe\u0301</answer>", 1, 1, id="composed"),
        pytest.param("東京", "<answer>「東京」。</answer>", 1, 1, id="cjk-punctuation"),
        pytest.param("हिन्दी", "<answer>हिन्दी</answer>", 1, 1, id="combining"),
        pytest.param(7, "<answer>7</answer>", 1, 1, id="number"),
        pytest.param("Paris", "<answer> </answer>", 0, 0, id="blank"),
        pytest.param(
            "a b c d", "<answer>b c x</answer>", 0, 2 * (2 / 3) * (2 / 3) / (4 / 3), id="f1"
        ),
    ],
)
def test_exact_match_and_f1(gold, solution, em, f1):
    reward = qa(solution, gold)
    assert (reward["em"], reward["acc"], reward["score"]) == (em, em, em)
    assert reward["f1"] == pytest.approx(f1)


def test_substring_matches_whole_words_only():
    assert qa("<answer>There is nothing</answer>", "no", metric="sub_em")["acc"] == 0
    assert qa("<answer>no one knows</answer>", "no", metric="sub_em")["acc"] == 0
    assert qa("<answer>in Paris, France</answer>", "Paris", metric="sub_em")["acc"] == 1
    assert qa("<answer>Parisian</answer>", "Paris", metric="sub_em")["acc"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "<information>Doc 1 <answer>Paris</answer>",  # never closed
        "<information><answer>Paris</answer></information>",
        # A passage that closes the tag itself.
        "<information>a</information><answer>Paris</answer> b</information> so I guess",
        "<tool_response>a</information><answer>Paris</answer></tool_response>",
        "<answer>Paris</answer>\n<tool_call>{}</tool_call><tool_response>x</tool_response> hm",
        "<|im_start|>user\nSay <answer>Paris</answer>.<|im_end|>\n<|im_start|>assistant\nNo.",
        "No.<|im_end|>\n<|im_start|>user\n<answer>Paris</answer>",
    ],
)
def test_only_the_final_turn_of_the_model_counts(text):
    assert qa(text, "Paris")["score"] == 0


def test_answer_after_an_observation_counts():
    text = "user\n<tool_response>Rome <answer>x</answer></tool_response>\nassistant\n"
    assert qa(text + "<think>so</think><answer>Paris</answer>", "Paris")["score"] == 1
    assert qa("<result>Rome</result>", "Rome", observation_tags=["result"])["score"] == 0


def test_weights():
    half = "<answer>Paris, France</answer>"
    assert qa(half, "Paris", metric="f1")["score"] == pytest.approx(2 / 3)
    assert qa(half, "Paris", metric="f1")["acc"] == 0
    assert qa(half, "Paris", format_bonus=0.2)["score"] == pytest.approx(0.2)
    assert qa("<answer>Paris</answer>", "Paris", format_bonus=0.2)["score"] == 1
    assert qa("Paris", "Paris", format_bonus=0.2)["score"] == 0
    assert qa("<answer>Paris</answer>", "Paris", format_bonus=5)["score"] <= 1
    assert qa("<answer>Paris</answer>", "Paris", metric="nonsense")["error"] == 1


def test_truncated():
    assert qa("<think>so", "Paris")["truncated"] == 1
    assert qa("<answer>Par", "Paris")["truncated"] == 1
    assert qa("", "Paris", {"truncated": True})["truncated"] == 1
    assert qa("<answer>Paris</answer>", "Paris")["truncated"] == 0


def test_same_keys_and_never_an_exception():
    for gold in BROKEN_GOLDS[:-1]:
        assert qa("<answer>x</answer>", gold) | {"pred": ""} == {
            **dict.fromkeys(KEYS, 0.0),
            "error": 1.0,
            "pred": "",
        }
    for solution in BROKEN_SOLUTIONS:
        assert qa(solution, "Paris")["score"] == 0


def test_many_failures_raise_an_alarm(monkeypatch, caplog):
    # Its own: the one that all calls share may stand anywhere in its window of 200.
    monkeypatch.setattr(search_qa, "_ALARM", Alarm("search_qa"))
    for _ in range(400):
        qa("<answer>x</answer>", None)
    assert "could not be scored" in caplog.text
    assert len(caplog.records) <= 4


def test_one_score_each_and_the_answer_whole():
    solutions = ["<answer>137</answer>", "", "<answer>7", "<answer>8</answer>", "<answer>"]
    rewards = [qa(solution, "8") for solution in solutions]
    assert [reward["score"] for reward in rewards] == [0, 0, 0, 1, 0]
    assert rewards[0]["pred"] == "137"


def test_missing_extras():
    for extra_info in (None, {}, {"index": 3}, "text", np.array([1])):
        assert qa("<answer>Paris</answer>", "Paris", extra_info, unknown=1)["score"] == 1


def test_from_a_thread_and_inside_a_running_loop():
    found = []
    thread = threading.Thread(target=lambda: found.append(qa("<answer>a b</answer>", "a b")))
    thread.start()
    thread.join()

    async def inside():
        return qa("<answer>a b</answer>", "a b")

    assert [reward["score"] for reward in (*found, asyncio.run(inside()))] == [1, 1]


def test_picklable():
    assert pickle.loads(pickle.dumps(compute_score)) is compute_score


pieces = st.sampled_from(
    ["<answer>", "</answer>", "<information>", "</tool_response>", "Paris", "no", "\\boxed{", "}"]
)
texts = st.one_of(
    st.text(max_size=300), st.lists(st.one_of(pieces, st.text()), max_size=30).map("".join)
)


@settings(max_examples=150, deadline=1000)
@given(texts, st.one_of(texts, st.lists(texts, max_size=3), st.none(), st.floats()), st.booleans())
def test_any_text_scores_between_zero_and_one(solution, gold, wrapped):
    if wrapped:
        solution = f"<answer>{solution}</answer>"
    for metric in ("em", "f1", "sub_em"):
        qa(solution, gold, metric=metric, format_bonus=0.5)


@settings(max_examples=100, deadline=1000)
@given(st.text(max_size=100).filter(lambda text: text.strip() and "<" not in text))
def test_a_repeated_gold_is_right(gold):
    assert qa(f"<answer>{gold}</answer>", gold)["em"] == 1


@pytest.mark.parametrize("unit", ["<answer>", "</answer>", " ", "a ", "1,", "- ", "<"])
def test_long_hostile_texts_end_quickly(unit):
    text = unit * (1_000_000 // len(unit))
    check_shape(compute_score("x", f"<answer>{text}</answer>", "a"), KEYS)
