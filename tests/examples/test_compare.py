"""The comparison's plan, its resuming, and its numbers from results worked out by hand."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("scipy")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "compare"
sys.path.insert(0, str(FOLDER))
import collect  # noqa: E402
import plan  # noqa: E402
import quantities  # noqa: E402
import results_file  # noqa: E402
import run_plan  # noqa: E402
import summarise  # noqa: E402

from verl_msgrpo.errors import UserError  # noqa: E402

RUNS = plan.plan()

# --- Plan -----------------------------------------------------------------------------------------


def test_seeds_of_each_method():
    seeds = {}
    for run in RUNS:
        seeds.setdefault((run.reward, run.method), []).append(run.seed)
    assert len(set(RUNS)) == len(RUNS) == 2 * 5 * 5 + 4 * 2
    for reward in ("graded", "binary"):
        for method in ("grpo", "dr_grpo", "ms_grpo", "ms_grpo_paper", "grpo_scaled"):
            assert seeds[reward, method] == [0, 1, 2, 3, 4]
    assert [s for (_, m), s in seeds.items() if m.startswith("ms_grpo_m")] == [[0, 1]] * 4


def test_whatever_has_ended_can_be_compared():
    """Cut anywhere, the four methods differ by one seed at most, and a control has its twin."""
    for end in range(1, len(RUNS) + 1):
        ended = RUNS[:end]
        counts = [
            sum((r.reward, r.method) == (reward, method) for r in ended)
            for reward in plan.REWARDS
            for method in plan.METHODS
        ]
        assert max(counts) - min(counts) <= 1
        assert all(r.exact_twin in ended for r in ended if r.method == "grpo_scaled")


def test_every_override_is_one_that_the_estimator_and_the_reward_take():
    config = pytest.importorskip("verl_msgrpo.estimator.config").MSGRPOConfig
    taken = {
        name: config.from_mapping(
            dict(
                override.removeprefix("+algorithm.ms_grpo.").split("=")
                for override in method.overrides
                if override.startswith("+algorithm.ms_grpo.")
            )
        )
        for name, method in plan.ALL_METHODS.items()
    }
    assert (taken["ms_grpo"].num_scales, taken["ms_grpo"].subgroups) == (None, "auto")
    assert [taken[n].num_scales for n in plan.SENSITIVITY] == [2, 4, 4, 4]
    assert [taken[n].subgroups for n in plan.SENSITIVITY] == ["all", "all", "diverse", "diverse"]
    assert [taken[n].subgroups_per_scale for n in ("ms_grpo_m4_k4", "ms_grpo_m4_k16")] == [4, 16]
    assert {m.estimator for m in plan.ALL_METHODS.values()} == {"grpo", "ms_grpo"}


def test_held_out_questions_that_may_search(tmp_path):
    pytest.importorskip("verl")
    datasets = pytest.importorskip("datasets")
    from search_questions import SearchQuestions

    dataset = SearchQuestions.__new__(SearchQuestions)
    dataset.filter_overlong_prompts = False
    sources = ["quickstart/search", "quickstart/no_search", "quickstart/search"]
    rows = datasets.Dataset.from_dict({"data_source": sources, "n": [0, 1, 2]})
    assert dataset.maybe_filter_out_long_prompts(rows)["n"][:] == [0, 2]


# --- Collecting a run -----------------------------------------------------------------------------

SCORES = {"u_1": [1.0, 0.0, 0.0, 0.0], "v": [1.0, 1.0, 1.0, 1.0]}


def write_run(folder, steps=2, held_out=0.75):
    (folder / "rollouts").mkdir(parents=True)
    lines = [{"step": 0, "data": {"ignored": 1.0}}]
    for step in range(1, steps + 1):
        lines.append({"step": step, "data": {"critic/score/mean": 0.5, "actor/lr": 2e-4}})
        dump = [
            {"uid": f"{uid}_{session}_0", "score": score}
            for uid, scores in SCORES.items()
            for session, score in enumerate(scores)
        ]
        text = "\n".join(map(json.dumps, dump))
        (folder / "rollouts" / f"{step}.jsonl").write_text(text)
    lines[-1]["data"][collect.HELD_OUT] = held_out
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))


def test_csv_of_a_run(tmp_path):
    write_run(tmp_path / "run")
    path = tmp_path / "graded-grpo-seed0.csv"
    collect.write_whole(path, collect.collect(tmp_path / "run", 2))
    columns = results_file.read_results(path)
    assert columns[collect.ACCURACY] == {1: 5 / 8, 2: 5 / 8}
    assert columns[collect.HELD_OUT] == {2: 0.75}
    assert columns["actor/lr"] == {1: 2e-4, 2: 2e-4}
    # One of two groups has a signal, with two distinct rewards: there MS-GRPO is c times GRPO. One
    # right of four, scale by scale, from the sample standard deviation of k rewards with one 1,
    # sd = 1 / sqrt(k): the right one gets (1 - 1/k) sqrt(k) at each scale k = 2, 3, 4.
    c = sum((1 - 1 / k) * math.sqrt(k) for k in (2, 3, 4)) / 3 / (3 / 4 * math.sqrt(4))
    assert columns["exact/homogeneous_share"][1] == 0.5
    assert columns["exact/distinct_rewards"][1] == 2
    assert columns["exact/scale"][1] == pytest.approx(c, rel=1e-4)
    assert columns["exact/correction"][1] == pytest.approx(0, abs=1e-6)
    assert "ms_grpo/scale" not in columns  # a column without a number
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".tmp"] == []


@pytest.mark.parametrize("damage", ["metrics", "dump", "no held-out", "other"])
def test_a_run_that_did_not_end_is_named(tmp_path, damage):
    run = tmp_path / "run"
    write_run(run)
    if damage == "metrics":
        (run / "metrics.jsonl").unlink()
    elif damage == "dump":
        (run / "rollouts" / "2.jsonl").unlink()
    elif damage == "other":
        (run / "rollouts" / "2.jsonl").write_text('{"score": 1.0}')
    else:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        (run / "metrics.jsonl").write_text("\n".join(lines[:-1]) + '\n{"step": 2, "da')
    with pytest.raises(UserError, match=r"run|dump"):
        collect.collect(run, 2)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "step,x\none,2\n", "step,x\n1,2,3\n"])
def test_a_broken_csv_is_named(tmp_path, text):
    path = tmp_path / "graded-grpo-seed0.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=path.name):
        results_file.read_results(path)


# --- Running the plan -----------------------------------------------------------------------------

# In the place of examples/quickstart/run.sh, whose runs take minutes: it leaves the files that
# `write_run` made, or does what the file BEHAVIOUR says, and notes how it was called.
STUB = """\
echo "$ADV_ESTIMATOR $SEED $STEPS $(basename "$DATA_DIR") $*" >>"$STUB_DIR/calls"
behaviour=$(cat "$STUB_DIR/behaviour" 2>/dev/null || true)
mkdir -p "$RUN_DIR/checkpoints"
[ "$behaviour" != fail ] || exit 3
[ "$behaviour" != once ] || { rm "$STUB_DIR/behaviour"; exit 3; }
if [ "$behaviour" = hang ]; then
    trap 'touch "$STUB_DIR/ended"' EXIT
    touch "$STUB_DIR/hanging"
    sleep 60
fi
cp -r "$STUB_DIR/made/." "$RUN_DIR"
"""


@pytest.fixture
def stub(tmp_path):
    (tmp_path / "stub.sh").write_text(STUB)
    write_run(tmp_path / "made")
    return tmp_path


def command(folder, only, steps=2):
    arguments = {
        **{"--steps": steps, "--only": only, "--quickstart": folder / "stub.sh"},
        **{"--out": folder / "out", "--results": folder / "results"},
    }
    script = [sys.executable, str(FOLDER / "run_plan.py")]
    return [*script, *(str(part) for pair in arguments.items() for part in pair)]


def start(folder, only, **knobs):
    return subprocess.Popen(
        command(folder, only, **knobs),
        env={**os.environ, "STUB_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder, only, **knobs):
    process = start(folder, only, **knobs)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def calls(folder):
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_runs_in_order_with_the_same_settings_and_resumes(stub):
    only = "graded-(grpo|ms_grpo|grpo_scaled|dr_grpo)-seed0"
    code, output = run(stub, only)
    assert code == 0, output
    assert "3 runs left" in output
    common = " ".join(run_plan.OVERRIDES)
    lr = (
        2e-4
        * results_file.read_results(stub / "results" / "graded-ms_grpo-seed0.csv")["exact/scale"][1]
    )
    assert calls(stub) == [
        f"grpo 0 2 data-seed0 {common}",
        f"grpo 0 2 data-seed0 {common} algorithm.norm_adv_by_std_in_grpo=False",
        f"ms_grpo 0 2 data-seed0 {common}",
        f"grpo 0 2 data-seed0 {common} actor_rollout_ref.actor.optim.lr={lr:.6g}",
    ]
    kept = stub / "out" / "runs" / "graded-grpo-seed0"
    assert sorted(p.name for p in kept.iterdir()) == ["metrics.jsonl", "rollouts"]
    assert [p.name for p in (kept / "rollouts").iterdir()] == ["2.jsonl"]

    (stub / "results" / "graded-dr_grpo-seed0.csv").unlink()
    code, output = run(stub, only)
    assert code == 0
    assert "4 runs of 2 steps, 3 of them done" in output
    assert len(calls(stub)) == 5
    assert "norm_adv_by_std" in calls(stub)[-1]


def test_the_binary_reward_is_asked_for(stub):
    assert run(stub, "binary-ms_grpo_paper-seed1")[0] == 0
    (call,) = calls(stub)
    assert call.startswith("ms_grpo 1 2 data-seed1")
    assert "+reward.custom_reward_function.reward_kwargs.binary=True" in call
    assert call.endswith("+algorithm.ms_grpo.preset=paper")


def test_a_failed_run_is_repeated_once(stub):
    (stub / "behaviour").write_text("once")
    code, output = run(stub, "graded-grpo-seed0")
    assert code == 0, output
    assert len(calls(stub)) == 2
    assert (stub / "results" / "graded-grpo-seed0.csv").exists()


def test_a_run_that_fails_twice_is_named_and_the_others_go_on(stub):
    (stub / "behaviour").write_text("fail")
    code, output = run(stub, "graded-(grpo|grpo_scaled)-seed0")
    assert code == 1
    assert len(calls(stub)) == 2  # the control was not started
    assert "failed: graded-grpo-seed0: exit code 3, see " in output
    assert "failed: graded-grpo_scaled-seed0: needs the mean c of graded-ms_grpo-seed0" in output
    assert list((stub / "results").iterdir()) == []


def test_results_of_another_length_are_not_mixed(stub):
    assert run(stub, "graded-grpo-seed0")[0] == 0
    code, output = run(stub, "graded-grpo-seed0", steps=5)
    assert code == 2
    assert "is of 2 steps, not 5" in output
    assert run(stub, "(")[0] == 2


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_pause_holds_the_next_run(stub):
    (stub / "out").mkdir()
    (stub / "out" / "PAUSE").touch()
    process = start(stub, "graded-grpo-seed0")
    lines = [process.stdout.readline() for _ in range(2)]
    assert "paused until" in lines[1]
    assert calls(stub) == []
    (stub / "out" / "PAUSE").unlink()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(calls(stub)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_the_run_below(stub, number):
    (stub / "behaviour").write_text("hang")
    process = start(stub, "graded-(grpo|dr_grpo)-seed0")
    wait_until((stub / "hanging").exists)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert (stub / "ended").exists()
    assert len(calls(stub)) == 1


def test_a_run_that_hangs_is_ended(stub, monkeypatch):
    (stub / "behaviour").write_text("hang")
    monkeypatch.setenv("STUB_DIR", str(stub))
    monkeypatch.setattr(run_plan, "LIMIT_S", 1)
    with pytest.raises(UserError, match="exit code 124"):
        run_plan.run_once(RUNS[0], 2, stub / "out", stub / "results", quickstart=stub / "stub.sh")
    assert (stub / "ended").exists()


# --- Numbers --------------------------------------------------------------------------------------


def columns(accuracy, held_out, correction=0.0):
    steps = range(1, len(accuracy) + 1)
    return {
        collect.ACCURACY: dict(zip(steps, accuracy, strict=True)),
        collect.HELD_OUT: {len(accuracy): held_out},
        collect.SCALE: dict.fromkeys(steps, 0.8),
        collect.CORRECTION: dict.fromkeys(steps, correction),
        collect.DISTINCT: dict.fromkeys(steps, 2.5),
    }


def test_quantities_of_a_run():
    found = quantities.quantities(columns([0.1, 0.6, 0.8, 0.73, 0.9, 0.5, 0.9, 0.8], 0.85))
    assert found[quantities.FINAL] == 0.85
    assert found[quantities.LATE] == pytest.approx((0.73 + 0.9 + 0.5 + 0.9 + 0.8) / 5)
    assert found[quantities.MEAN] == pytest.approx(5.33 / 8)
    # Means of three end at steps 3 and 4: 0.5, 0.71.
    assert found[quantities.REACHED] == 4


def test_a_target_that_is_never_reached_counts_as_one_step_more():
    assert quantities.steps_to_target({1: 0.9, 2: 0.9, 3: 0.2, 4: 0.2}) == 5
    assert quantities.steps_to_target({1: 0.9, 2: 0.9}) == 3


SYNTHETIC = {
    plan.Run("graded", "grpo", 0): columns([0.5] * 4, 0.80),
    plan.Run("graded", "grpo", 1): columns([0.7] * 4, 0.82),
    plan.Run("graded", "grpo", 2): columns([0.9] * 4, 0.10),  # a seed that no other method has
    plan.Run("graded", "ms_grpo", 0): columns([0.6] * 4, 0.84, correction=0.05),
    plan.Run("graded", "ms_grpo", 1): columns([0.9] * 4, 0.84, correction=0.01),
    plan.Run("graded", "grpo_scaled", 0): columns([0.7] * 4, 0.80),
    plan.Run("binary", "grpo", 0): columns([0.5] * 4, 0.5),
}


def write_all(folder):
    folder.mkdir()
    for one, series in SYNTHETIC.items():
        rows = [
            [step, *(series.get(name, {}).get(step, math.nan) for name in collect.COLUMNS[1:])]
            for step in range(1, 5)
        ]
        collect.write_whole(folder / f"{one.name}.csv", rows)


def test_paired_difference_and_students_interval():
    change = quantities.difference(SYNTHETIC, "graded", "ms_grpo", "grpo", quantities.FINAL)
    assert change.count == 2
    assert change.value == pytest.approx(0.03)
    # Differences 0.04 and 0.02: sd = 0.02 / sqrt(2), t(0.975, 1) = 12.7062, over sqrt(2).
    assert change.high - change.value == pytest.approx(12.7062 * 0.01, rel=1e-4)
    assert quantities.difference(SYNTHETIC, "binary", "ms_grpo", "grpo", quantities.FINAL) is None


def row_of(text, start, table=0):
    rows = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in rows[table].strip("|").split("|")]


def test_summary_of_partial_results(tmp_path):
    write_all(tmp_path / "results")
    results = summarise.read_all(tmp_path / "results")
    text = summarise.summary(results)
    assert text.startswith("7 of 58 runs have ended.")
    # Mean and sd of 0.80, 0.82, 0.10: 0.5733, sqrt((0.2267^2 + 0.2467^2 + 0.4733^2) / 2) = 0.4101.
    assert row_of(text, "GRPO")[1:3] == ["3", "0.573 (0.410)"]
    assert row_of(text, "MS-GRPO exact")[1:3] == ["2", "0.840 (0.000)"]
    assert row_of(text, "MS-GRPO exact")[5] == "4.0 (1.4)"  # 5 (never) and 3
    assert row_of(text, "MS-GRPO exact", table=1)[1:3] == ["2", "+0.030 [-0.097, +0.157]"]
    assert row_of(text, "graded, seed 0")[1:] == ["0.800", "0.050", "2.500", "+0.040", "+0.100"]
    assert row_of(text, "graded: GRPO, rate times c minus GRPO")[1:4] == ["1", "+0.000", "+0.200"]
    assert row_of(text, "graded: MS-GRPO exact minus GRPO, rate times c")[2] == "+0.040"
    assert "**Control" in text
    assert "**Sensitivity" not in text  # no such run has ended
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(re.fullmatch(r"\|( [^|]* \||---\|)+", line) for line in lines)


def test_command_writes_tables_and_figures(tmp_path, monkeypatch, capsys):
    write_all(tmp_path / "results")
    readme = tmp_path / "README.md"
    readme.write_text(f"Above\n\n{summarise.BEGIN}\nold\n{summarise.END}\n\nbelow\n")
    arguments = ["--results", str(tmp_path / "results"), "--readme", str(readme)]
    monkeypatch.setattr(sys, "argv", ["summarise.py", *arguments])
    assert summarise.main() == 0
    assert "7 of 58 runs" in capsys.readouterr().out
    text = readme.read_text()
    assert text.startswith(f"Above\n\n{summarise.BEGIN}\n7 of 58 runs")
    assert text.endswith(f"{summarise.END}\n\nbelow\n")
    assert "old" not in text
    names = ["graded_accuracy", "binary_accuracy", "correction", "differences", "heterogeneity"]
    for name in names:
        assert (tmp_path / "results" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert summarise.main() == 0
    assert readme.read_text() == text


def test_no_results_and_a_page_without_marks(tmp_path):
    with pytest.raises(UserError, match="no run has ended"):
        summarise.read_all(tmp_path)
    assert summarise.with_tables("a page", "text") == "a page"
