"""The tests of programming problems: every public form of them as one JSON string.

    {"tests": [{"input": str, "output": str, "testtype": "stdin" | "functional"}, ..],
     "fn_name": str | null}

The input of a functional test is one JSON value a line, an argument each; its output is one JSON
value.
"""

import json
from collections.abc import Mapping

from verl_msgrpo.tasks.fields import FieldError, shown

Test = dict[str, str]


def as_ground_truth(tests: list[Test], fn_name: str | None, field: str) -> str:
    """The ground truth of a problem.

    Raises:
        FieldError: no tests, or tests of functions without the function's name.
    """
    if not tests:
        raise FieldError(f"{field} holds no tests")
    if fn_name is None and any(test["testtype"] == "functional" for test in tests):
        raise FieldError(f"{field} has functional tests, but nothing names the function")
    return json.dumps({"tests": tests, "fn_name": fn_name})


def read_cases(text: str, field: str) -> list[Test]:
    """LiveCodeBench's list of {input, output, testtype}, as JSON; raises FieldError."""
    return cases(parse(text, field), field)


def cases(items: object, field: str) -> list[Test]:
    """A list of {input, output, testtype or type} in the one form; raises FieldError."""
    if not isinstance(items, list):
        raise FieldError(f"{field} is {shown(items)}; it must be a list of tests")
    return [_case(item, f"{field}[{index}]") for index, item in enumerate(items)]


def read_any(value: object, field: str) -> tuple[list[Test], str | None]:
    """The tests and the function's name in the forms of verl's code sets; raises FieldError.

    Reads JSON or what it stands for: {"inputs": [..], "outputs": [..], "fn_name"?} (APPS, TACO,
    Eurus-2-RL), a list of cases (DeepCoder), or our own form.
    """
    if isinstance(value, str):
        value = parse(value, field)
    if isinstance(value, list):
        names = {name for item in value if (name := _name_in_case(item))}
        if len(names) > 1:
            raise FieldError(f"{field} names several functions: {shown(sorted(names))}")
        return cases(value, field), next(iter(names), None)
    if not isinstance(value, Mapping):
        raise FieldError(f"{field} is {shown(value)}; it must be tests")
    fn_name = value.get("fn_name") or None
    if fn_name is not None and not isinstance(fn_name, str):
        raise FieldError(f"{field}.fn_name is {shown(fn_name)}; it must be a text")
    if "tests" in value:
        return cases(value["tests"], f"{field}.tests"), fn_name
    inputs, outputs = value.get("inputs"), value.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise FieldError(f'{field} needs the lists "inputs" and "outputs", or "tests"')
    if len(inputs) != len(outputs):
        raise FieldError(f"{field} has {len(inputs)} inputs but {len(outputs)} outputs")
    if fn_name is None:
        pairs = [(_lines(i), _lines(o)) for i, o in zip(inputs, outputs, strict=True)]
    else:
        # APPS wraps what a function returns into a list of one, in all tests of a problem.
        if all(isinstance(output, list) and len(output) == 1 for output in outputs):
            outputs = [output[0] for output in outputs]
        pairs = [(_arguments(i), json.dumps(o)) for i, o in zip(inputs, outputs, strict=True)]
    testtype = "stdin" if fn_name is None else "functional"
    return [{"input": i, "output": o, "testtype": testtype} for i, o in pairs], fn_name


def parse(text: str, field: str) -> object:
    """JSON; raises FieldError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldError(f"{field} is not JSON: {error}") from None


def _case(item: object, field: str) -> Test:
    if not isinstance(item, Mapping):
        raise FieldError(f"{field} is {shown(item)}; it must be an input and an output")
    given, expected = item.get("input"), item.get("output")
    if not isinstance(given, str) or not isinstance(expected, str):
        raise FieldError(f"{field} lacks an input or an output that is a text")
    kind = item.get("testtype", item.get("type"))
    if kind in ("stdin", "stdin_stdout"):
        return {"input": given, "output": expected, "testtype": "stdin"}
    if kind in ("functional", "function_call"):
        return {"input": given, "output": expected, "testtype": "functional"}
    raise FieldError(f"{field}.testtype is {shown(kind)}; it must be stdin or functional")


def _name_in_case(item: object) -> str:
    """The function's name in a case of DeepCoder's, "" without one."""
    if not isinstance(item, Mapping):
        return ""
    metadata = item.get("metadata")
    inner = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    return str(item.get("fn_name") or inner or "")


def _lines(value: object) -> str:
    """Standard input or output; some sets keep a list of lines."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def _arguments(value: object) -> str:
    arguments = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(argument) for argument in arguments)
