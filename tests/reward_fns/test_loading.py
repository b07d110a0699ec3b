"""As verl uses them: by path, in a fresh process, from a thread, sent to other processes."""

import subprocess
import sys

import pytest

from tests.reward_fns.loading import ROOT

pytest.importorskip("math_verify")


@pytest.mark.parametrize(
    ("name", "solution", "gold"),
    [
        ("math_answer", r"\boxed{\frac12}", "1/2"),
        ("multiple_choice", r"\boxed{B}", "B"),
        ("search_qa", "<answer>Paris</answer>", "Paris"),
    ],
)
def test_by_path_in_a_fresh_process_and_a_thread(name, solution, gold, tmp_path):
    path = str(ROOT / "reward_fns" / f"{name}.py")
    code = f"""
import importlib.util, pickle, sys, threading
spec = importlib.util.spec_from_file_location("custom_module_1", {path!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
compute_score = pickle.loads(pickle.dumps(module.compute_score))
def work():
    print(compute_score(data_source="x", solution_str={solution!r}, ground_truth={gold!r})["score"])
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("torch" in sys.modules, "verl" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["1.0", "False", "False"], done.stderr
    assert done.stderr == ""
