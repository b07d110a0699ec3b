"""As verl uses them: by path, in a fresh process, from a thread, sent to other processes."""

import subprocess
import sys

import pytest

from tests.reward_fns.code_rows import SUM, fenced, skip_without, stdin_tests
from tests.reward_fns.loading import ROOT

pytest.importorskip("math_verify")


@pytest.mark.parametrize(
    ("name", "solution", "gold"),
    [
        ("math_answer", r"\boxed{\frac12}", "1/2"),
        ("multiple_choice", r"\boxed{B}", "B"),
        ("search_qa", "<answer>Paris</answer>", "Paris"),
        ("code_tests", fenced(SUM), stdin_tests(("1 2", "3"))),
        ("dispatch", "<answer>Paris</answer>", "Paris"),
    ],
)
def test_by_path_in_a_fresh_process_and_a_thread(name, solution, gold, tmp_path):
    if name == "code_tests":
        skip_without("auto")
    path = str(ROOT / "reward_fns" / f"{name}.py")
    code = f"""
import importlib.util, pickle, sys, threading
spec = importlib.util.spec_from_file_location("custom_module_1", {path!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
compute_score = pickle.loads(pickle.dumps(module.compute_score))
def work():
    row = dict(data_source="hotpotqa", solution_str={solution!r}, ground_truth={gold!r})
    print(compute_score(**row)["score"])
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("torch" in sys.modules, "verl" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["1.0", "False", "False"], done.stderr
    # Where bubblewrap is missing, the reward for programs says so when it is loaded.
    said = [line for line in done.stderr.splitlines() if "bubblewrap does not work" not in line]
    assert said == []


@pytest.mark.parametrize(
    ("name", "source", "solution", "gold"),
    [
        ("math_answer", "math_dapo", r"\boxed{7}", "7"),
        ("multiple_choice", "INK-USC/riddle_sense", r"\boxed{B}", "B"),
        ("search_qa", "hotpotqa/hotpot_qa", "<answer>Paris</answer>", "Paris"),
        ("code_tests", "apps", "no program", stdin_tests(("1 2", "3"))),
        ("dispatch", "hotpotqa/hotpot_qa", "<answer>Paris</answer>", "Paris"),
    ],
)
def test_by_package_through_verl_s_own_loader(name, source, solution, gold):
    """Loaded and called as verl does; the options come from a DictConfig."""
    omegaconf = pytest.importorskip("omegaconf")
    reward = pytest.importorskip("verl.trainer.ppo.reward")
    custom = {
        "path": f"pkg://verl_msgrpo.rewards.{name}",
        "name": "compute_score",
        "reward_kwargs": {"format_bonus": 0.5, "search_qa": {"format_bonus": 0.5}},
    }
    config = omegaconf.OmegaConf.create({"reward": {"custom_reward_function": custom}})
    compute_score = reward.get_custom_reward_fn(config)
    call = {"data_source": source, "ground_truth": gold, "extra_info": {}}
    right = compute_score(solution_str=solution, **call)
    assert right["score"] == (name != "code_tests")
    assert right["error"] == 0
    wrong = compute_score(solution_str=solution.replace("B", "C").replace("Paris", "x"), **call)
    if name in ("multiple_choice", "search_qa", "dispatch"):
        assert wrong["score"] == 0.5
