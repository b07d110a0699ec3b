r"""The tests of a programming problem: the one reader for `prepare`, `check-data` and the reward.

Whatever the form, a problem becomes a `Suite`, and `canonical_json` is how a suite is kept in a
row, as LiveCodeBench's own tests:

    {"tests": [{"input": "1 2", "output": "3", "testtype": "stdin"}, ...], "fn_name": null}

A test whose `testtype` is "functional" calls `fn_name`: its `input` has one argument in JSON a
line, its `output` is the value in JSON. All tests of a problem have the same type.

Read are, as JSON or as what it stands for:

- that, also under the name `test_cases` (PrimeIntellect), or the list alone (LiveCodeBench,
  DeepCoder), with `type` for `testtype`, "stdin_stdout" and "function_call" for its values, and the
  function's name in the tests (`fn_name`, or `func_name` in `metadata`) or in the row's extra_info;
- {"inputs": [...], "outputs": [...], "fn_name": ...} (APPS, TACO, Eurus-2-RL, verl's prime_code),
  whose tests are functional where there is a name;
- LiveCodeBench's columns, the private one packed or not.

Input and output of a script are text, or a list of lines. A function's input is text as above, and
then its output is JSON if it is text; or it is a list of arguments, and then its output is the
value itself, text too. Where all values are lists of one, as APPS wraps them, a program may return
either (`wrapped`).

Nothing but the standard library is imported, as data is also prepared where no verl is.
"""

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from reprlib import repr as shown
from typing import NamedTuple

from verl_msgrpo.rewards.code.sandbox.confine import OUTPUT_BYTES, WORK_BYTES
from verl_msgrpo.rewards.ground_truth import GroundTruthError

INPUT_BYTES = WORK_BYTES // 2  # it is a file in the sandbox
MAX_DEPTH = 100  # of values, which are compared level by level
MAX_UNPACKED_BYTES = 512 << 20  # of one problem's private tests
_TYPES = {
    "stdin": "stdin",
    "stdin_stdout": "stdin",
    "functional": "functional",
    "function_call": "functional",
}
_TEXT = frozenset(("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"))
_FRAMING = frozenset(("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"))


class Case(NamedTuple):
    """One test.

    input: standard input; for a function, its arguments in JSON, one a line.
    output: what a script prints; for a function, its value in JSON.
    """

    input: str
    output: str


@dataclass(frozen=True)
class Suite:
    """All tests of a problem, at least one, of which one at least expects something.

    function: the name of the function that they call, "" for a script.
    wrapped: whether a list that holds nothing but the value is right as well.
    """

    cases: tuple[Case, ...]
    function: str = ""
    wrapped: bool = False


class _Raw(NamedTuple):
    """A test as it is found: what messages call its parts; its type and function if it says so."""

    input_field: str
    output_field: str
    input: object
    output: object
    kind: str | None = None
    function: str = ""


def read_cases(
    ground_truth: object, extra_info: object = None, field: str = "ground_truth"
) -> Suite:
    """The tests of a row.

    Args:
        ground_truth: see above; numpy's arrays and numbers are read as lists and numbers.
        extra_info: may hold the function's name (`fn_name`, `func_name`) where the tests do not.
        field: what messages call the ground truth.

    Raises:
        GroundTruthError: there are no tests, or one of them cannot be read, or no program could
            pass it, or one that does nothing could pass all of them; names the field.
    """
    if isinstance(ground_truth, str | bytes):
        value = _parsed(ground_truth, field)
    else:
        value = _as_json(ground_truth, field)
    if not isinstance(value, Mapping):
        return _suite(_raw_of_list(value, field), "", extra_info, field)
    suite = _suite(_raw_of_mapping(value, field), _function_in(value, field), extra_info, field)
    if suite.function and value.get("wrapped") is True:
        return replace(suite, wrapped=True)
    return suite


def read_livecodebench(public: str, private: str, metadata: str) -> Suite:
    """The tests in three columns of LiveCodeBench: both lists, and the function's name.

    Raises:
        GroundTruthError: as `read_cases`; names the column.
    """
    private = unpacked(private, "private_test_cases")
    found = _raw_of_list(_parsed(public, "public_test_cases"), "public_test_cases")
    found += _raw_of_list(_parsed(private, "private_test_cases"), "private_test_cases")
    name = ""
    if any(raw.kind == "functional" for raw in found):
        name = _function_in(_parsed(metadata, "metadata"), "metadata")
        if not name:
            raise GroundTruthError("metadata has no func_name for functional tests")
    return _suite(found, name, None, "private_test_cases")


def canonical_json(suite: Suite) -> str:
    """The form above; `read_cases` gives the suite back."""
    kind = "functional" if suite.function else "stdin"
    tests = [{"input": i, "output": o, "testtype": kind} for i, o in suite.cases]
    row: dict[str, object] = {"tests": tests, "fn_name": suite.function or None}
    if suite.wrapped:
        row["wrapped"] = True
    return json.dumps(row)


def unpacked(packed: str, field: str, max_bytes: int = MAX_UNPACKED_BYTES) -> str:
    """The JSON of LiveCodeBench's private tests, which are plain or base64 of zlib of a pickle.

    Unpickling can call anything and fill the memory. A pickled text consists of its characters and
    of framing, so the pickle is read as a list of opcodes, and any other opcode is refused.

    Raises:
        GroundTruthError: it is neither, or larger than `max_bytes`.
    """
    if packed.lstrip()[:1] in ("[", "{"):
        return packed
    unpacker = zlib.decompressobj()
    try:
        pickled = unpacker.decompress(base64.b64decode(packed, validate=True), max_bytes + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise GroundTruthError(f"{field} is neither JSON nor base64 of zlib: {error}") from None
    if len(pickled) > max_bytes:
        raise GroundTruthError(f"{field} holds more than {max_bytes} bytes")
    if not unpacker.eof:
        raise GroundTruthError(f"{field} is cut short")
    found: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name in _TEXT and isinstance(argument, str):
                found.append(argument)
            elif opcode.name not in _FRAMING:
                raise GroundTruthError(f"{field} is a pickle of something else than a text")
    except GroundTruthError:
        raise
    except (ValueError, EOFError) as error:
        raise GroundTruthError(f"{field} is not a pickle: {error}") from None
    if len(found) != 1:
        raise GroundTruthError(f"{field} is a pickle of {len(found)} texts; it must be one")
    return found[0]


def _raw_of_mapping(row: Mapping[str, object], field: str) -> list[_Raw]:
    """The tests of a mapping; what is null counts as absent, as parquet fills nulls in."""
    if row.get("assert_case") is not None:
        raise GroundTruthError(f"{field}.assert_case: assertions would run inside the program")
    language = row.get("language")
    if language is not None and language != "python":
        raise GroundTruthError(f"{field}.language is {shown(language)}; it must be python")
    there = [key for key in ("tests", "test_cases", "inputs") if row.get(key) is not None]
    if len(there) > 1:
        raise GroundTruthError(f"{field} has both {there[0]} and {there[1]}")
    if there and there[0] != "inputs":
        return _raw_of_list(row[there[0]], f"{field}.{there[0]}")
    inputs, outputs = row.get("inputs"), row.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise GroundTruthError(f'{field} needs the lists "inputs" and "outputs", or "tests"')
    if len(inputs) != len(outputs):
        raise GroundTruthError(f"{field} has {len(inputs)} inputs but {len(outputs)} outputs")
    return [
        _Raw(f"{field}.inputs[{number}]", f"{field}.outputs[{number}]", given, wanted)
        for number, (given, wanted) in enumerate(zip(inputs, outputs, strict=True))
    ]


def _raw_of_list(items: object, field: str) -> list[_Raw]:
    if not isinstance(items, list):
        raise GroundTruthError(f"{field} is {shown(items)}; it must be a list of tests")
    return [_raw_of_item(item, f"{field}[{number}]") for number, item in enumerate(items)]


def _raw_of_item(item: object, field: str) -> _Raw:
    if not isinstance(item, Mapping) or not {"input", "output"} <= item.keys():
        raise GroundTruthError(f"{field} is {shown(item)}; it must have an input and an output")
    key = "type" if item.get("testtype") is None else "testtype"
    said = item.get(key)
    if said is not None and not (isinstance(said, str) and said in _TYPES):
        raise GroundTruthError(f"{field}.{key} is {shown(said)}; allowed are {', '.join(_TYPES)}")
    name = _function_in(item, field) or _function_in(item.get("metadata"), f"{field}.metadata")
    kind = _TYPES[said] if isinstance(said, str) else None
    places = (f"{field}.input", f"{field}.output")
    return _Raw(*places, item["input"], item["output"], kind, name)


def _suite(found: list[_Raw], name: str, extra_info: object, field: str) -> Suite:
    """The tests in one form; those that do not say their type are a function's if one is named."""
    if not found:
        raise GroundTruthError(f"{field} holds no tests")
    names = {raw.function for raw in found if raw.function} | ({name} if name else set())
    if not names and any(raw.kind != "stdin" for raw in found):
        names = {_function_in(extra_info, "extra_info")} - {""}
    if len(names) > 1:
        raise GroundTruthError(f"{field} names several functions: {', '.join(sorted(names))}")
    kinds = {raw.kind or ("functional" if names else "stdin") for raw in found}
    if len(kinds) > 1:
        raise GroundTruthError(f"{field} has tests of both types, stdin and functional")
    if kinds == {"functional"} and not names:
        raise GroundTruthError(f"{field} has functional tests, but nothing names the function")
    function = "".join(names) if kinds == {"functional"} else ""
    wrapped = bool(function) and all(
        isinstance(raw.input, list) and isinstance(raw.output, list) and len(raw.output) == 1
        for raw in found
    )
    if wrapped:
        found = [
            raw._replace(output=raw.output[0]) for raw in found if isinstance(raw.output, list)
        ]
    cases = tuple(_call(raw) if function else _script_case(raw) for raw in found)
    if not any(case.output.strip() != ("null" if function else "") for case in cases):
        raise GroundTruthError(f"{field}: every test expects nothing, so that doing nothing passes")
    return Suite(cases, function, wrapped)


def _script_case(raw: _Raw) -> Case:
    return Case(
        _text(raw.input, raw.input_field, INPUT_BYTES),
        _text(raw.output, raw.output_field, OUTPUT_BYTES),
    )


def _call(raw: _Raw) -> Case:
    """A function's test: with text as input, text as output is JSON as well."""
    if isinstance(raw.input, str):
        given = _text(raw.input, raw.input_field, INPUT_BYTES)
        for line in given.split("\n"):
            if line.strip():
                _parsed(line, raw.input_field)
    elif isinstance(raw.input, list):
        given = "\n".join(_dumped(argument, raw.input_field) for argument in raw.input)
    else:
        raise GroundTruthError(
            f"{raw.input_field} is {shown(raw.input)}; it must be a list of arguments, or "
            "text with one in JSON a line"
        )
    if isinstance(raw.input, str) and isinstance(raw.output, str):
        wanted, value = raw.output, _parsed(raw.output, raw.output_field)
    else:
        wanted, value = _dumped(raw.output, raw.output_field), raw.output
    _check_value(value, wanted, raw.output_field)
    return Case(given, _text(wanted, raw.output_field, OUTPUT_BYTES))


def _check_value(value: object, text: str, field: str) -> None:
    """Refuses what no value equals, and what is nested too deeply to be compared."""
    if "NaN" not in text and text.count("[") + text.count("{") <= MAX_DEPTH:
        return  # the rule, which costs nothing
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if any(isinstance(item, float) and item != item for item in level):
            raise GroundTruthError(f"{field} holds NaN, which equals nothing")
        lists = [list(item.values()) if isinstance(item, Mapping) else item for item in level]
        level = [item for items in lists if isinstance(items, list) for item in items]
    if level:
        raise GroundTruthError(f"{field} is nested deeper than {MAX_DEPTH}")


def _text(value: object, field: str, limit: int) -> str:
    """Text, or a list of lines, that a pipe can carry; numbers are written out."""
    lines = value if isinstance(value, list) else [value]
    if not all(
        isinstance(line, str | int | float) and not isinstance(line, bool) for line in lines
    ):
        raise GroundTruthError(f"{field} is {shown(value)}; it must be text, or a list of lines")
    try:
        text = "\n".join(map(str, lines))
        size = len(text.encode())
    except UnicodeEncodeError:
        raise GroundTruthError(f"{field} holds half a surrogate pair, which is not text") from None
    except ValueError as error:  # an integer of more than 4,300 digits
        raise GroundTruthError(f"{field}: {error}") from None
    if size > limit:
        raise GroundTruthError(f"{field} holds more than {limit} bytes")
    return text


def _function_in(holder: object, field: str) -> str:
    """The name of the function that a mapping names, "" if it names none."""
    if not isinstance(holder, Mapping):
        return ""
    key = "fn_name" if holder.get("fn_name") else "func_name"
    name = holder.get(key) or ""
    if not isinstance(name, str) or (name and not name.isidentifier()):
        raise GroundTruthError(f"{field}.{key} is {shown(name)}; it must be the name of a function")
    return name


def _parsed(text: str | bytes, field: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        said = str(error) if isinstance(error, ValueError) else "too deep"
        raise GroundTruthError(f"{field} is not JSON: {said}") from None


def _dumped(value: object, field: str) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise GroundTruthError(f"{field} has no form in JSON: {error}") from None


def _as_json(value: object, field: str) -> object:
    """The value with lists for arrays and tuples, and Python's numbers for numpy's."""
    try:
        return _without_arrays(value)
    except RecursionError:
        raise GroundTruthError(f"{field} is nested too deeply") from None


def _without_arrays(value: object) -> object:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_without_arrays(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _without_arrays(item) for key, item in value.items()}
    return value
