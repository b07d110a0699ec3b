import pytest

from tests.report.files import dump_row, write_dump, write_run
from verl_msgrpo.errors import UserError
from verl_msgrpo.report.runs import read_run
from verl_msgrpo.report.trajectories import MODEL, OBSERVATION, extremes, last_dump, segments


def parts(text):
    return [(part.author, part.text) for part in segments(text)]


def test_model_text_and_observations_apart():
    text = "call\ntool\n<tool_response>Doc 1</tool_response>\nassistant\nanswer"
    assert parts(text) == [
        (MODEL, "call"),
        (OBSERVATION, "\ntool\n<tool_response>Doc 1</tool_response>\nassistant\n"),
        (MODEL, "answer"),
    ]


def test_special_tokens_and_parallel_calls():
    shown = (
        "<|im_end|>\n<|im_start|>user\n<tool_response>a</tool_response>\n"
        "<tool_response>b</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert parts(f"call{shown}answer") == [(MODEL, "call"), (OBSERVATION, shown), (MODEL, "answer")]


def test_search_r1s_tags_and_an_observation_without_end():
    text = "<search>q</search>\n<information>x</information>\nthen<information>y</tool_response> z"
    assert parts(text) == [
        (MODEL, "<search>q</search>\n"),
        (OBSERVATION, "<information>x</information>"),
        (MODEL, "\nthen"),
        (OBSERVATION, "<information>y</tool_response> z"),
    ]


@pytest.mark.parametrize(
    "text", ["", " \n", "only text", "<information>", "</tool_response>x", " <information>x ", "\n"]
)
def test_nothing_gets_lost(text):
    assert "".join(part.text for part in segments(text)) == text


def test_many_open_tags_take_no_time():
    text = "<information>" * 100_000
    assert parts(text) == [(OBSERVATION, text)]


def test_best_and_worst_are_of_different_prompts(tmp_path):
    rows = [
        dump_row(f"u{p}", f"{p}.{s}", score, session=s, acc=float(score > 0.5), note="text")
        for p, scores in enumerate([(1.0, 1.0), (0.9, 0.1), (0.0, 0.2)])
        for s, score in enumerate(scores)
    ]
    found = extremes(write_dump(tmp_path / "3.jsonl", rows), 2)
    assert [(t.response, t.score) for t in found.best] == [("0.0", 1.0), ("1.0", 0.9)]
    assert [(t.response, t.score) for t in found.worst] == [("2.0", 0.0), ("1.1", 0.1)]
    assert (found.rollouts, found.unread) == (6, 0)
    assert found.mean == pytest.approx(3.2 / 6)
    assert found.best[0].numbers == {"acc": 1.0}
    assert (found.best[0].prompt, found.best[0].truth) == ("Q", "gold")


def test_rows_of_a_session_are_one_trajectory_with_the_last_rows_score(tmp_path):
    rows = [
        dump_row("u", "second", 0.25, index=1, prompt="later"),
        dump_row("u", "first ", 9.0, index=0, prompt="begin"),
        dump_row("v", "other", 0.5),
    ]
    found = extremes(write_dump(tmp_path / "3.jsonl", rows), 5)
    assert [(t.response, t.score) for t in found.worst] == [("first second", 0.25), ("other", 0.5)]
    assert found.worst[0].prompt == "begin"
    assert found.rollouts == 2


@pytest.mark.parametrize("session", ["x", "²", "\u0663", "1" * 10, "-1", ""])
def test_a_row_key_needs_two_short_numbers(tmp_path, session):
    """Under any other key each row is a trajectory; those with equal prompts are of one prompt."""
    rows = [dump_row("u", f"{n}", float(n), session=session, index=n) for n in range(2)]
    found = extremes(write_dump(tmp_path / "3.jsonl", rows), 5)
    assert found.rollouts == 2
    assert [t.response for t in found.best] == ["1"]
    assert [t.response for t in found.worst] == ["0"]


def test_rows_that_cannot_be_used_are_counted(tmp_path):
    file = write_dump(
        tmp_path / "3.jsonl",
        [
            dump_row("u", "kept", 1.0),
            *(dump_row("v", "x", score) for score in (None, "1", float("nan"))),
            dump_row("w", None, 1.0),
        ],
    )
    with file.open("a") as more:
        more.write('{"output": "cut')
    found = extremes(file, 1)
    assert (found.rollouts, found.unread) == (1, 5)
    assert found.best[0].response == found.worst[0].response == "kept"


def test_a_file_without_scores_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"1.jsonl: no row with `output` and `score`"):
        extremes(write_dump(tmp_path / "1.jsonl", [{"a": 1}]), 1)


def test_last_dump(tmp_path):
    folder = write_run(tmp_path / "a", {1: {}})
    run = read_run(folder, lambda name: True)
    assert last_dump(run) is None
    for name in (
        "validation/20.jsonl",
        "rollouts/9.jsonl",
        "rollouts/10.jsonl",
        "rollouts/x.jsonl",
    ):
        write_dump(folder / name, [])
    assert last_dump(run) == folder / "rollouts" / "10.jsonl"
