import pytest

from tests.report.files import write_run
from verl_msgrpo.errors import UserError
from verl_msgrpo.report.runs import read_run


def read(path):
    return read_run(path, lambda name: name != "unwanted")


def test_series_by_name_in_order_of_steps(tmp_path):
    folder = write_run(tmp_path / "a", {2: {"x": 2, "unwanted": 1}, 1: {"x": 1.5, "y": True}})
    run = read(folder)
    assert run.metrics == {"x": {1: 1.5, 2: 2.0}, "y": {1: 1.0}}
    assert list(run.metrics["x"]) == [1, 2]
    assert (run.last_step, run.unread, run.name) == (2, 0, "a")
    assert read(folder / "metrics.jsonl").metrics == run.metrics


def test_a_resumed_run_is_one(tmp_path):
    """Steps that were done again after the checkpoint are those of the later part."""
    folder = write_run(tmp_path / "a", {5: {"x": 50}, 6: {"x": 60}})
    for number, steps in ((2, {3: 3, 4: 4, 5: 5}), (10, {4: 40}), (1, {1: 1, 2: 2, 3: 0})):
        part = write_run(tmp_path / str(number), {step: {"x": x} for step, x in steps.items()})
        (part / "metrics.jsonl").rename(folder / f"metrics.{number}.jsonl")
    (folder / "metrics.old.jsonl").write_text('{"step": 9, "data": {"x": 9}}\n')
    assert read(folder).metrics == {"x": {1: 1, 2: 2, 3: 3, 4: 40, 5: 50, 6: 60}}


def test_of_a_run_that_was_started_anew_only_the_last_attempt_counts(tmp_path):
    folder = write_run(tmp_path / "a", {0: {"x": 0}, 1: {"x": 1}})
    part = write_run(tmp_path / "1", {0: {"y": 5}, 1: {"x": 5}, 30: {"x": 5}})
    (part / "metrics.jsonl").rename(folder / "metrics.1.jsonl")
    run = read(folder)
    assert run.metrics == {"x": {0: 0, 1: 1}}
    assert run.last_step == 1


def test_a_file_with_a_number_in_its_name_is_another_run(tmp_path):
    for name, steps in (("qwen2", {1: {"x": 1}}), ("qwen2.5", {2: {"x": 2}})):
        folder = write_run(tmp_path / name, steps)
        (folder / "metrics.jsonl").rename(tmp_path / f"{name}.jsonl")
    assert read(tmp_path / "qwen2.jsonl").metrics == {"x": {1: 1}}


def test_lines_that_are_cut_or_foreign_are_counted(tmp_path):
    folder = write_run(tmp_path / "a", {1: {"x": 1.0}})
    bad = [
        *(b"[1]", b'"x"', b'{"step": true, "data": {}}', b'{"step": -1, "data": {}}'),
        *(b'{"step": 2}', b"\xff\xfe", b"[" * 100_000, b'{"step": 3, "data": {"x": 1'),
    ]
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b"\n\n" + b"\n".join(bad))
    run = read(folder)
    assert run.metrics == {"x": {1: 1.0}}
    assert run.unread == len(bad)


def test_values_that_are_no_finite_numbers_are_missing(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    data = f'{{"a": NaN, "b": Infinity, "c": "1", "d": null, "e": {10**400}, "f": 1e400, "g": 2}}'
    (folder / "metrics.jsonl").write_text(f'{{"step": 1, "data": {data}}}\n')
    assert read(folder).metrics == {"g": {1: 2.0}}


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("grpo-seed1", "metrics.jsonl"), "grpo-seed1"),
        (("grpo", "seed_1", "metrics.jsonl"), "grpo/seed_1"),
        (("grpo", "17", "metrics.jsonl"), "grpo/17"),
        (("project", "experiment.jsonl"), "experiment"),
    ],
)
def test_name(tmp_path, parts, name):
    path = tmp_path.joinpath(*parts)
    path.parent.mkdir(parents=True)
    path.write_text('{"step": 1, "data": {}}\n')
    assert read(path).name == name


def test_errors_name_the_path_and_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such run"):
        read(tmp_path / "nowhere")
    (tmp_path / "other.jsonl").write_text("")
    with pytest.raises(UserError, match=r"no metrics.jsonl in it .*is it .*other.jsonl\?"):
        read(tmp_path)
    with pytest.raises(UserError, match="no line of verl's file logger"):
        read(tmp_path / "other.jsonl")
