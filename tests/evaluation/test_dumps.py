import functools
import json
import re

import numpy as np
import pytest

from tests.evaluation.files import groups, verl_row, write_rows
from verl_msgrpo.common.json_lines import objects_of
from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation import dumps
from verl_msgrpo.evaluation.dumps import NO_ANSWER, NO_PRED, read_samples


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.jsonl"


def test_reads_what_verl_itself_writes(tmp_path):
    trainer = pytest.importorskip("verl.trainer.ppo.v1.trainer_base").PPOTrainer
    # Two prompts with two sessions each; the first session of prompt "a" has two rows, and verl
    # repeats its last score on both. A reward function without `f1` leaves None.
    trainer._write_generations(
        inputs=["Q a", "Q a, going on", "Q a", "Q b", "Q b"],
        outputs=["1", "22", "333", "4444", "55555"],
        gts=[np.array(["x", "y"]), np.array(["x", "y"]), np.array(["x", "y"]), "z", "z"],
        scores=[np.float32(1.0), np.float32(1.0), 0.0, 0.0, 1.0],
        reward_extra_infos_dict={
            "reward": [1.0, 1.0, 0.0, 0.0, 1.0],
            "acc": [1.0, 1.0, 0.0, 0.0, 1.0],
            "f1": [None, None, None, 0.5, np.float64(1.0)],
            "pred": ["x", "x", "", None, "Z "],
            "uid": ["a_0_0", "a_0_1", "a_1_0", "b-b_0_0", "b-b_1_0"],
        },
        dump_path=str(tmp_path),
        global_steps=7,
    )
    samples = read_samples(tmp_path / "7.jsonl")
    assert (samples.step, samples.rows) == (7, 5)
    assert samples.prompts.tolist() == [0, 0, 1, 1]
    assert samples.numbers["acc"].tolist() == [1, 0, 0, 1]
    np.testing.assert_array_equal(samples.numbers["f1"], [np.nan, np.nan, 0.5, 1.0])
    assert samples.numbers["output_chars"].tolist() == [3, 3, 4, 5]
    assert samples.answers.tolist() == [0, NO_ANSWER, NO_PRED, 1]
    assert set(samples.numbers) == {"score", "acc", "f1", "output_chars"}


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_the_last_row_of_a_session_counts_wherever_it_stands(path, order):
    rows = [verl_row(f"Q{i}", "a", float(i == 2), index=i, acc=float(i == 2)) for i in range(3)]
    samples = read_samples(write_rows(path, [rows[i] for i in order]))
    assert samples.numbers["acc"].tolist() == [1.0]
    first_alone = read_samples(write_rows(path, rows[:1]))
    assert samples.keys == first_alone.keys  # the prompt is that of the first row


def test_a_uid_with_underscores_and_row_keys_of_ten_and_more(path):
    rows = [verl_row("Q", "my_own_uid", 1.0, session=s) for s in (0, 2, 10)]
    rows += [verl_row("Q", "my_own", 1.0)]
    samples = read_samples(write_rows(path, rows))
    assert samples.prompts.tolist() == [0, 0, 0, 1]


def test_a_dump_of_the_old_trainer_is_grouped_by_prompt(path):
    rows = [verl_row(q, "", 1.0) for q in ("A", "B", "A")]
    for row in rows:
        del row["uid"]
    assert read_samples(write_rows(path, rows)).prompts.tolist() == [0, 1, 0]


def test_a_uid_that_is_no_row_key_names_the_prompt(path):
    rows = [verl_row("Q", "", 1.0) | {"uid": uid} for uid in ("a-1", "a-1", "b_x_1")]
    assert read_samples(write_rows(path, rows)).prompts.tolist() == [0, 0, 1]


@pytest.mark.parametrize("session", ["x", "²", "\u0663", "1" * 10, "-1", ""])
def test_a_row_key_needs_two_short_numbers(path, session):
    """Any other uid names a prompt, of which each row is a sample."""
    rows = [verl_row("Q", "u", 1.0, session=session, index=0) for _ in range(2)]
    samples = read_samples(write_rows(path, rows))
    assert samples.prompts.tolist() == [0, 0]
    keyed = [verl_row("Q", "u", 1.0, session=9, index=n) for n in range(2)]
    assert read_samples(write_rows(path, keyed)).prompts.tolist() == [0]


def test_a_byte_order_mark_is_not_part_of_the_first_row(path):
    write_rows(path, groups([1, 0]))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_samples(path).numbers["acc"].tolist() == [1, 0]


def test_samples_of_any_origin(path):
    rows = [
        {"prompt": [{"role": "user", "content": "Q"}], "score": s, "pred": pred, "response": text}
        for s, pred, text in [(1, "Paris", "ab"), (True, " paris\n", ""), (0.5, 12, "c")]
    ]
    samples = read_samples(write_rows(path, rows))
    assert samples.prompts.tolist() == [0, 0, 0]
    assert samples.answers.tolist() == [0, 0, 1]
    assert samples.numbers["score"].tolist() == [1, 1, 0.5]
    assert samples.numbers["output_chars"].tolist() == [2, 0, 1]


def test_equal_uids_of_two_data_sources_are_two_prompts(path):
    rows = [{"uid": 0, "acc": 1, "data_source": source} for source in "aba"]
    samples = read_samples(write_rows(path, rows))
    assert samples.prompts.tolist() == [0, 1, 0]
    assert samples.sources == ["a", "b"]


def test_what_is_no_finite_number_is_none(path):
    values = [1.0, None, float("nan"), float("inf"), "1", [1], 10**400]
    samples = read_samples(write_rows(path, [{"uid": i, "acc": v} for i, v in enumerate(values)]))
    assert np.isnan(samples.numbers["acc"]).tolist() == [False] + [True] * 6


def test_text_of_models_stays_text(path):
    hostile = ["\ud800", "\x1b[2J", "\u0000", "</s>" * 1000, '{"acc": 1}', "a\u2028b"]
    rows = [{"prompt": text, "acc": 1, "pred": text, "output": text} for text in hostile]
    samples = read_samples(write_rows(path, rows))
    assert samples.prompts.tolist() == list(range(len(hostile)))
    assert samples.answers.tolist() == list(range(len(hostile)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows"),
        ("\n \n", "no rows"),
        ('{"uid": 1, "acc": 1}\n\n{"uid": 1, "ac', "line 3: broken JSON"),
        ("[1]\n", "line 1: not a JSON object"),
        ("1" * 5000, "line 1: broken JSON"),
        ("[" * 100_000, "line 1: broken JSON"),
        ('{"acc": 1}\n', "line 1: no uid and no prompt"),
        ('{"prompt": null, "acc": 1}\n', "line 1: no uid and no prompt"),
        ('{"uid": 1, "acc": 1}\n{"uid": 1, "score": 1}\n', "line 2: other keys .*'acc', 'score'"),
        (
            '{"uid": 1, "acc": 1, "step": 1}\n{"uid": 1, "acc": 1, "step": 2}\n',
            "step 2 after step 1",
        ),
    ],
)
def test_files_that_cannot_be_evaluated(path, text, message):
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_samples(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text(path):
    path.write_bytes(b'{"uid": 1, "acc": 1}\n\xff\xfe\x80{}\n')
    with pytest.raises(UserError, match="line 2: broken JSON"):
        read_samples(path)


@pytest.mark.parametrize("depth", [100, *range(900, 1000, 7), 2000])
def test_nesting_is_bounded(path, depth):
    path.write_text('{"prompt": ' + "[" * depth + "]" * depth + ', "acc": 1}\n')
    try:
        outcome = str(read_samples(path).rows)
    except UserError as error:
        outcome = str(error)
    allowed = {100: "^1$", 2000: "line 1: broken JSON"}.get(depth, "^1$|line 1: ")
    assert re.search(allowed, outcome)


def test_long_lines_are_refused(path, monkeypatch):
    monkeypatch.setattr(dumps, "objects_of", functools.partial(objects_of, limit=100))
    rows = groups([1])
    write_rows(path, rows)
    assert read_samples(path).rows == 1
    write_rows(path, [*rows, rows[0] | {"prompt": "x" * 100}])
    with pytest.raises(UserError, match="line 2: longer than 100 bytes"):
        read_samples(path)


def test_two_dumps_in_one_file(path):
    rows = [verl_row("Q", "a", 1.0), verl_row("Q", "a", 0.0)]
    with pytest.raises(UserError, match="line 2: its uid was there before"):
        read_samples(write_rows(path, rows))


def test_folders_and_missing_files(tmp_path):
    with pytest.raises(UserError, match=r"a folder; name one file of it$"):
        read_samples(tmp_path)
    write_rows(tmp_path / "0.jsonl", groups([1]))
    with pytest.raises(UserError, match=r"for example .*/0\.jsonl$"):
        read_samples(tmp_path)
    with pytest.raises(UserError, match="No such file"):
        read_samples(tmp_path / "missing.jsonl")


def test_only_numbers_are_kept(path):
    import tracemalloc

    with path.open("w") as file:
        for i in range(200):
            row = {"uid": i, "acc": 1, "pred": "p" * 10_000, "output": "o" * 90_000}
            file.write(json.dumps(row) + "\n")
    tracemalloc.start()
    samples = read_samples(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(samples.prompts) == 200
    assert peak < 4e6 < path.stat().st_size
