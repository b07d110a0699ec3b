"""The tests of a row, in whatever form its ground truth keeps them.

    {"tests": [{"input": "1 2", "output": "3", "testtype": "stdin"}, ...], "fn_name": null}

This is what `verl-msgrpo prepare` writes, as a JSON string: LiveCodeBench's own tests. A test whose
`testtype` is "functional" calls `fn_name`; its `input` has one argument in JSON a line, its
`output` is the value in JSON. Also read are a bare list of tests, with the name in the row's
extra_info, and the form of APPS, TACO and Eurus, whose tests are functional where it has a name:

    {"inputs": ["1 2", ...], "outputs": ["3", ...], "fn_name": "f"}
"""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from verl_msgrpo.rewards.code_values import same_output, same_value
from verl_msgrpo.rewards.ground_truth import GroundTruthError
from verl_msgrpo.rewards.sandbox.confine import OUTPUT_BYTES

_TYPES = ("stdin", "functional")


@dataclass(frozen=True)
class Case:
    """One test: what goes in, whether what comes out is right."""

    input: str
    is_right: Callable[[bytes], bool]


@dataclass(frozen=True)
class Suite:
    """All tests of a row, at least one, and the function that they call, "" for a script's."""

    cases: tuple[Case, ...]
    function: str


def read_tests(ground_truth: object, extra_info: object = None) -> Suite:
    """The tests of a row; raises GroundTruthError where there is none, or one cannot be read.

    So it does where a program could pass all of them that prints nothing and returns None.
    """
    row = _decoded(ground_truth)
    found = row.get("tests") if isinstance(row, Mapping) else row
    name = _function_name(row) or _function_name(extra_info)
    if isinstance(row, Mapping) and found is None:
        if row.get("assert_case") is not None:
            raise GroundTruthError("tests in the form of assertions run inside the program")
        inputs, outputs = _listed(row.get("inputs")), _listed(row.get("outputs"))
        if len(inputs) != len(outputs):
            raise GroundTruthError(f"{len(inputs)} inputs but {len(outputs)} outputs")
        kind = "functional" if name else "stdin"
        found = [
            {"input": given, "output": wanted, "testtype": kind}
            for given, wanted in zip(inputs, outputs, strict=True)
        ]
    cases, kinds, telling = [], set(), False
    for number, test in enumerate(_listed(found)):
        try:
            kind, case, tells = _case(test)
        except (TypeError, ValueError, RecursionError) as error:
            raise GroundTruthError(f"test {number}: {error}") from None
        kinds.add(kind)
        cases.append(case)
        telling |= tells
    if len(kinds) > 1:
        raise GroundTruthError("tests of both types, stdin and functional")
    if not cases:
        raise GroundTruthError("no test in the ground truth")
    if "functional" in kinds and not name:
        raise GroundTruthError("the tests are functional, and there is no fn_name")
    if not telling:
        raise GroundTruthError("every test expects nothing, so that doing nothing passes")
    return Suite(tuple(cases), name if "functional" in kinds else "")


def _case(test: object) -> tuple[str, Case, bool]:
    """A test's type, the test, and whether it expects anything."""
    if not isinstance(test, Mapping) or "input" not in test or "output" not in test:
        raise ValueError("is no mapping with input and output")
    kind = test.get("testtype") or "stdin"
    if kind not in _TYPES:
        raise ValueError(f"testtype is {kind!r}")
    given, wanted = test["input"], test["output"]
    if kind == "stdin":
        expected = _text(wanted)
        if len(expected) > OUTPUT_BYTES:
            raise ValueError(f"expects more than {OUTPUT_BYTES} bytes")
        is_right = functools.partial(same_output, expected=expected)
        return kind, Case(_text(given), is_right), bool(expected.strip())
    if not isinstance(given, str):
        given = "\n".join(json.dumps(_plain(argument)) for argument in _listed(given))
    accepted = [json.loads(wanted) if isinstance(wanted, str) else _plain(wanted)]
    if isinstance(wanted, list) and len(wanted) == 1:  # APPS and TACO wrap a value, not always
        accepted.append(wanted[0])
    return kind, Case(given, functools.partial(_is_one_of, accepted)), accepted[0] is not None


def _is_one_of(accepted: list[object], returned: bytes) -> bool:
    return any(same_value(returned, value) for value in accepted)


def _decoded(ground_truth: object) -> object:
    if isinstance(ground_truth, str | bytes):
        try:
            return json.loads(ground_truth)
        except (ValueError, RecursionError):
            raise GroundTruthError("the ground truth is not JSON") from None
    return ground_truth


def _function_name(row: object) -> str:
    if not isinstance(row, Mapping):
        return ""
    name = row.get("fn_name") or row.get("func_name") or ""
    if not isinstance(name, str):
        raise GroundTruthError(f"fn_name is {name!r}, not a string")
    return name


def _listed(value: object) -> list[object]:
    if isinstance(value, np.ndarray):
        return list(value)
    if not isinstance(value, list | tuple):
        raise GroundTruthError(f"no list of tests in the ground truth, but {type(value).__name__}")
    return list(value)


def _text(value: object) -> str:
    """Text, or a list of lines as APPS has it."""
    if isinstance(value, list | tuple | np.ndarray):
        return "\n".join(_text(line) for line in value)
    if not isinstance(value, str | int | float):
        raise ValueError(f"{type(value).__name__} is no text")
    return str(value)


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
