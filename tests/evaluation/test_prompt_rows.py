import pandas as pd
import pytest

from tests.evaluation.files import verl_row, write_rows
from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.dumps import UNMATCHED, read_samples
from verl_msgrpo.evaluation.prompt_rows import PromptRows

TEMPLATES = {
    "chatml": "system\nYou are helpful.\nuser\n{}\nassistant\n",
    "llama 3": "system\n\nCutting Knowledge Date: 2023user\n\n{}assistant\n\n",
    "plain": "{}",
}


def data_row(question, answer, source, system=None):
    prompt = [{"role": "user", "content": question}]
    if system is not None:
        prompt.insert(0, {"role": "system", "content": system})
    return {
        "data_source": source,
        "prompt": prompt,
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"index": 0},
    }


def prompt_rows(tmp_path, *rows):
    path = tmp_path / "val.parquet"
    pd.DataFrame(list(rows)).to_parquet(path)
    return PromptRows([path])


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_finds_every_prompt_in_its_template(tmp_path, template):
    questions = [f"What is {i}\n\n  times {i}?" for i in range(300)]
    rows = [data_row(q, "ABCD"[i % 4], f"source {i % 7}") for i, q in enumerate(questions)]
    # The same questions with words before and behind: the longest message is the right one.
    rows += [data_row(f"From memory. {q} Be short.", "A", "memory") for q in questions]
    data = prompt_rows(tmp_path, *rows)
    for row in reversed(rows):
        text = template.format(row["prompt"][0]["content"])
        found = data.find(text, row["reward_model"]["ground_truth"])
        assert (found.source, found.message) == (
            row["data_source"],
            " ".join(row["prompt"][0]["content"].split()),
        )


def test_the_longest_message_is_the_right_one(tmp_path):
    rows = [data_row(q, "x", q) for q in ("Which?", "From memory. Which?", "memory. Which?")]
    found = prompt_rows(tmp_path, *rows).find("user\nFrom memory. Which?\nassistant\n", "x")
    assert found.source == "From memory. Which?"


def test_the_ground_truth_tells_equal_prompts_apart(tmp_path):
    golds = [["Paris", "paris"], ["Rome"]]
    rows = [data_row("Which?", gold, source) for gold, source in zip(golds, "ab", strict=True)]
    data = prompt_rows(tmp_path, *rows)
    assert [data.find("user Which? assistant", gold).source for gold in golds] == ["a", "b"]


def test_the_system_prompt_tells_equal_prompts_apart(tmp_path):
    systems = {"search": "Use the tool.", "memory": "Use the tool. No, do not."}
    rows = [data_row("Which?", "x", source, system) for source, system in systems.items()]
    data = prompt_rows(tmp_path, *rows)
    for source, system in systems.items():
        assert data.find(f"system\n{system}\nuser\nWhich?\nassistant\n", "x").source == source


def test_prompts_that_cannot_be_told_apart_name_both_sources(tmp_path):
    rows = [data_row("Which?", "x", source) for source in "aba"]
    data = prompt_rows(tmp_path, *rows)
    assert data.find("Which?", "x").source == "a or b"
    assert len(data.rows) == 1


def test_another_form_of_the_ground_truth_does_not_matter(tmp_path):
    data = prompt_rows(tmp_path, data_row("Which one?", ["x"], "a"), data_row("Which?", ["y"], "b"))
    assert data.find("user\nWhich one?\nassistant", "['x']").source == "a"


def test_unicode_forms_are_the_same_text(tmp_path):
    data = prompt_rows(tmp_path, data_row("Caf\u00e9 \u2460?", "x", "a"))
    assert data.find("user\nCafe\u0301 1?\n", "x").source == "a"


def test_samples_get_their_data_source(tmp_path):
    data = prompt_rows(tmp_path, *(data_row(q, "gold", q[0]) for q in ("a?", "b?", "c?")))
    rows = [verl_row(q, q, 1.0) for q in ("a?", "b?", "never seen")]
    samples = read_samples(write_rows(tmp_path / "1.jsonl", rows), data)
    assert samples.sources == ["a", "b", UNMATCHED]
    assert (samples.unmatched, samples.unseen) == (1, 1)


def test_chat_prompts_of_other_files_are_found_as_well(tmp_path):
    data = prompt_rows(tmp_path, data_row("a?", "x", "a", system="Think."))
    row = {"prompt": [{"role": "user", "content": "a?"}], "acc": 1}
    assert read_samples(write_rows(tmp_path / "1.jsonl", [row]), data).sources == ["a"]


def test_a_data_file_of_other_prompts(tmp_path):
    data = prompt_rows(tmp_path, data_row("another?", "x", "a"))
    with pytest.raises(UserError, match="none of its prompts is in --data"):
        read_samples(write_rows(tmp_path / "1.jsonl", [verl_row("a?", "a", 1.0)]), data)


@pytest.mark.parametrize("column", ["prompt", "data_source"])
def test_a_data_file_without_a_column(tmp_path, column):
    row = data_row("a?", "x", "a")
    del row[column]
    with pytest.raises(UserError, match=f"no column {column}"):
        prompt_rows(tmp_path, row)


def test_a_data_file_that_is_none(tmp_path):
    path = tmp_path / "val.parquet"
    with pytest.raises(UserError, match="not a parquet file that can be read"):
        PromptRows([path])
    path.write_text('{"prompt": "x"}\n')
    with pytest.raises(UserError, match="not a parquet file that can be read"):
        PromptRows([path])
