"""Runs a program under test in this process: as a script, or by a call of one of its functions."""

import atexit
import gc
import os
import sys
import types


def fresh_module(name: str, prelude: dict[str, object]) -> types.ModuleType:
    """An empty module that knows the names of the prelude, in place of the one of that name."""
    module = types.ModuleType(name)
    module.__dict__.update(prelude)
    sys.modules[name] = module
    return module


def run_script(code: types.CodeType, prelude: dict[str, object]) -> None:
    """Runs the program as a script, and ends this process as one ends.

    Its threads are waited for, exit handlers run, files flushed; the exit code is 0, or the one
    that it asks for, or 1 after an exception. What the interpreter does beyond that takes longer
    than a short program.
    """
    module = fresh_module("__main__", prelude)
    status: object = 1
    try:
        try:
            exec(code, module.__dict__)
            status = None
        except SystemExit as error:
            status = error.code
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        module.__dict__.clear()  # closes the files that only it holds
        gc.collect()
    except BaseException:
        status = 1
    os._exit(0 if status is None else status & 255 if isinstance(status, int) else 1)


def call_function(
    code: types.CodeType, prelude: dict[str, object], name: str, arguments: str
) -> bytes:
    """What a function of the program returns, as JSON.

    The function is a method of the program's class Solution, where it has one, or else a global.
    arguments: one JSON value per line. Raises whatever the program does, AttributeError where there
    is no such function, TypeError where the value has no form in JSON.
    """
    import json

    module = fresh_module("solution", prelude)
    exec(code, module.__dict__)
    owner = module.__dict__.get("Solution")
    function = getattr(owner() if owner else module, name)
    values = [json.loads(line) for line in arguments.split("\n") if line.strip()]
    returned = function(*values)
    return json.dumps(returned, default=_plain, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    """numpy's arrays and numbers as Python's own."""
    return value.tolist()  # type: ignore[attr-defined]
