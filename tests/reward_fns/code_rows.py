"""Rows and programs that the tests of the code reward share."""

import json

import pytest

from verl_msgrpo.rewards.code import isolation
from verl_msgrpo.rewards.code.runner import IsolationError

SUM = "print(sum(map(int, input().split())))"


def fenced(source, label="python"):
    return f"So:\n\n```{label}\n{source}\n```\n"


def stdin_tests(*pairs):
    tests = [{"input": given, "output": wanted, "testtype": "stdin"} for given, wanted in pairs]
    return json.dumps({"tests": tests, "fn_name": None})


def calls(*pairs, name="f"):
    tests = [{"input": a, "output": b, "testtype": "functional"} for a, b in pairs]
    return json.dumps({"tests": tests, "fn_name": name})


def skip_without(way):
    """Skips a test where a way of isolation does not work, saying why."""
    try:
        isolation.choose(way)
    except IsolationError as error:
        pytest.skip(str(error))
