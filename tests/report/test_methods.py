"""Which runs belong together, and which differences are named."""

from tests.report.files import settings_of, write_run
from verl_msgrpo.report.methods import differences, group_runs, method_of, warnings
from verl_msgrpo.report.runs import read_run


def a_run(folder, settings=None, last=3):
    path = write_run(folder, {1: {"x": 1.0}, last: {"x": 2.0}}, settings)
    return read_run(path, lambda name: True)


def shape(methods):
    return [(m.name, [run.name for run in m.runs], m.seeds) for m in methods]


def test_same_settings_but_for_the_seed_are_one_method(tmp_path):
    runs = [
        a_run(tmp_path / f"{name}-seed{seed}", settings_of(name, seed))
        for seed in (1, 2)
        for name in ("grpo", "ms_grpo")
    ]
    assert shape(group_runs(runs)) == [
        ("grpo", ["grpo-seed1", "grpo-seed2"], ["1", "2"]),
        ("ms_grpo", ["ms_grpo-seed1", "ms_grpo-seed2"], ["1", "2"]),
    ]


def test_another_learning_rate_is_another_method(tmp_path):
    runs = [
        a_run(tmp_path / f"grpo-seed{seed}", settings_of("grpo", seed, lr=lr))
        for seed, lr in ((1, 1e-4), (2, 1e-3))
    ]
    assert [m.name for m in group_runs(runs)] == ["grpo", "grpo (2)"]


def test_names_without_a_seed_are_told_apart_by_settings_alone(tmp_path):
    runs = [a_run(tmp_path / f"run{n}", settings_of("grpo", s)) for s, n in enumerate("ab")]
    runs.append(a_run(tmp_path / "c", settings_of("ms_grpo", 7)))
    assert shape(group_runs(runs)) == [
        ("grpo", ["runa", "runb"], ["0", "1"]),
        ("c", ["c"], ["7"]),
    ]


def test_without_settings_the_name_tells(tmp_path):
    runs = [a_run(tmp_path / name) for name in ("x-seed1", "x_seed2", "y", "z", "a/x-seed3")]
    assert shape(group_runs(runs)) == [
        ("x", ["x-seed1", "x-seed3"], ["1", "3"]),
        ("x (2)", ["x_seed2"], ["2"]),
        ("y", ["y"], [None]),
        ("z", ["z"], [None]),
    ]


def test_a_seed_that_stands_twice_pairs_nothing(tmp_path):
    runs = [a_run(tmp_path / f"{name}-seed1") for name in "ab"] + [a_run(tmp_path / "c-seed2")]
    method = method_of("m", runs)
    assert method.seeds == [None, None, "2"]
    assert list(method.by_seed()) == ["2"]


def test_differences_outside_of_the_algorithm_come_first(tmp_path):
    grpo = method_of("grpo", [a_run(tmp_path / "a-seed1", settings_of("grpo", 1, lr=1e-4))])
    ours = method_of("ours", [a_run(tmp_path / "b-seed1", settings_of("ms_grpo", 1, lr=2e-4))])
    found = differences([grpo, ours])
    assert [(d.name, d.values) for d in found] == [
        ("actor_rollout_ref.actor.optim.lr", [["0.0001"], ["0.0002"]]),
        ("algorithm.adv_estimator", [['"grpo"'], ['"ms_grpo"']]),
    ]
    said = " ".join(warnings([grpo, ours], found))
    assert "1 setting(s) outside of `algorithm` differ" in said
    assert "One run per method" in said
    assert "different seeds" not in said


def test_a_fair_comparison_has_no_warning(tmp_path):
    methods = [
        method_of(name, [a_run(tmp_path / f"{name}-seed{s}", settings_of(name, s)) for s in (1, 2)])
        for name in ("grpo", "ms_grpo")
    ]
    assert warnings(methods, differences(methods)) == []


def test_what_makes_a_comparison_unfair_is_said(tmp_path):
    grpo = [
        a_run(tmp_path / f"g-seed{s}", settings_of("grpo", s, lr=s * 1e-4), last=2 + s)
        for s in (1, 2)
    ]
    methods = [method_of("grpo", grpo), method_of("ours", [a_run(tmp_path / "o-seed3")])]
    said = " ".join(warnings(methods, differences(methods)))
    assert "Runs of grpo differ in actor_rollout_ref.actor.optim.lr." in said
    assert "Settings unknown, and so not compared: o-seed3" in said
    assert "different steps (g-seed1 3, g-seed2 4, o-seed3 3)" in said
    assert "different seeds (grpo has 1, 2; ours has 3)" in said
