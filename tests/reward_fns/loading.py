"""Loads a reward function the way that verl does: by path, under a made-up module name."""

import importlib.util
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]

# Ground truths and responses that nothing sensible can be made of.
BROKEN_GOLDS = [None, "", [], {}, {"target": None}, np.array([]), object(), b"x", float("nan")]
BROKEN_SOLUTIONS = ["", None, 7, "\x00", "x" * 1_000_000, "\ud800", "<answer>\ud800</answer>"]


def load(name):
    path = ROOT / "reward_fns" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"custom_module_{hash(str(path))}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.compute_score


def check_shape(reward, keys):
    """One fixed key set, numbers but for `pred`, a score between 0 and 1, no key `reward`."""
    assert list(reward) == keys
    assert isinstance(reward["pred"], str)
    numbers = {key: value for key, value in reward.items() if key != "pred"}
    assert all(type(value) is float and 0 <= value <= 1 for value in numbers.values()), numbers
