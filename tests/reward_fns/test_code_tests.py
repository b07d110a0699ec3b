import asyncio
import json
import logging
import os
import pickle
import runpy
import threading
import time

import numpy as np
import psutil
import pytest

from tests.reward_fns.code_rows import SUM, calls, fenced, skip_without, stdin_tests
from tests.reward_fns.loading import BROKEN_GOLDS, BROKEN_SOLUTIONS, check_shape, load
from verl_msgrpo.common import once
from verl_msgrpo.rewards import code_tests
from verl_msgrpo.rewards.code import isolation

KEYS = ["score", "acc", "passed", "format_ok", "truncated", "timeout", "error", "pred"]
compute_score = load("code_tests")
ADD = stdin_tests(("1 2", "3"))


def code(source, tests=ADD, extra_info=None, label="python", **options):
    return scored(fenced(source, label), tests, extra_info, **options)


def scored(solution, tests=ADD, extra_info=None, **options):
    reward = compute_score("livecodebench", solution, tests, extra_info, **options)
    check_shape(reward, KEYS)
    return reward


@pytest.fixture(params=["bubblewrap"])
def way(request):
    skip_without(request.param)
    return {"isolation": request.param}


@pytest.fixture
def isolated():
    """For what only the sandbox's inside decides: one way is enough."""
    skip_without("auto")


def programs_left():
    """Processes of sandboxes that this process started."""
    everyone = psutil.Process().children(recursive=True)
    return [p for p in everyone if any("sandbox" in word for word in p.cmdline())]


def test_stdin_and_right(way):
    assert code(SUM, **way)["score"] == 1
    assert code(SUM + "#" * 20, stdin_tests(("1 2", "4")), **way)["score"] == 0


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("source", "expected", "score"),
    [
        pytest.param("print('3 \\n\\n')", "3\r\n", 1, id="blanks-and-windows"),
        pytest.param("print('a  b\\nc')", "a  b \r\nc\r\n", 1, id="lines"),
        pytest.param("print('a b\\nc')", "a  b\nc", 0, id="blanks-inside"),
        pytest.param("print('a\\n\\nb')", "a\nb", 0, id="blank-line-inside"),
        pytest.param("print(1/3)", "0.333333", 1, id="decimal"),
        pytest.param("print(0.3334)", "0.333333", 0, id="decimal-wrong"),
        pytest.param("print(3.0)", "3", 1, id="whole"),
        pytest.param("print(3.0000001)", "3", 0, id="whole-is-exact"),
        pytest.param("print('yes')", "YES", 0, id="case"),
        pytest.param("print('nan')", "1.0", 0, id="nan"),
        pytest.param("import os; os.write(1, b'3')", "3", 1, id="raw"),
        pytest.param("print(len(stdin.readline()))", "3", 1, id="stdin-known"),
        pytest.param("print(len(open(0).read()))", "3", 1, id="open-0"),
        pytest.param("import sys; sys.stdout.buffer.write(b'3')", "3", 1, id="buffer"),
        pytest.param("f = open(1, 'w'); f.write('3')", "3", 1, id="own-file-not-closed"),
        pytest.param("import atexit; atexit.register(print, 3)", "3", 1, id="exit-handler"),
        pytest.param(
            "import threading, time\n"
            "threading.Thread(target=lambda: (time.sleep(.05), print(3))).start()",
            *("3", 1),
            id="thread",
        ),
        pytest.param("print(3)\nexit()", "3", 1, id="exit"),
        pytest.param("print(3)\nraise SystemExit(1)", "3", 0, id="exit-code"),
        pytest.param("print(3)\n1/0", "3", 0, id="exception-after"),
        pytest.param("if __name__ == '__main__': print(3)", "3", 1, id="main"),
        pytest.param("print(gcd(9, 6))", "3", 1, id="names-known"),
        pytest.param(
            "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(3).x)",
            *("3", 1),
            id="dataclass",
        ),
        pytest.param("def f(n): return n and f(n - 1)\nf(20000)\nprint(3)", "3", 1, id="recursion"),
        pytest.param(
            "import os\nprint(len(os.read(0, os.fstat(0).st_size)) + 0)", "3", 1, id="fstat"
        ),
    ],
)
def test_output(source, expected, score):
    assert code(source, stdin_tests(("1 2", expected)))["score"] == score


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("source", "expected", "score"),
    [
        pytest.param("def f(x): return (x, 2)", "[1, 2]", 1, id="tuple"),
        pytest.param("def f(x): return [x, 2.0000001]", "[1, 2.0]", 1, id="float-in-a-list"),
        pytest.param("def f(x): return [x, 2.001]", "[1, 2.0]", 0, id="float-wrong"),
        pytest.param("def f(x): return [(x, (2,))]", "[[1, [2]]]", 1, id="nested"),
        pytest.param("def f(x): return '1'", "1", 0, id="text-is-no-number"),
        pytest.param("def f(x): return {x: 2}", '{"1": 2}', 1, id="keys"),
        pytest.param("def f(x): return {1}", "[1]", 0, id="set"),
        pytest.param("def f(x): return float('nan')", "1.0", 0, id="nan"),
        pytest.param("def f(x): return None", "1", 0, id="none"),
        pytest.param("def g(x): return 1", "1", 0, id="no-such-function"),
        pytest.param(
            "class Solution:\n  def f(self, x: List[int]) -> int: return inf if x > 1 else 7",
            *("7", 1),
            id="solution",
        ),
        pytest.param("def f(x):\n  print('[1, 2]')\n  return 5", "5", 1, id="prints"),
        pytest.param(
            "import json\njson.dumps = lambda *a, **k: '9'\ndef f(x): 0", "7", 0, id="replaced-json"
        ),
        pytest.param("print('7')\nimport sys; sys.exit(0)", "7", 0, id="call-exits"),
        pytest.param("print('7')\nimport os; os._exit(0)", "7", 0, id="call-os-exits"),
        pytest.param(
            "class X(int):\n  __eq__ = lambda *a: True\ndef f(x): return X(3)",
            "7",
            0,
            id="equals-everything",
        ),
        pytest.param(
            "def f(x):\n  l = []\n  for _ in range(10**5): l = [l]\n  return l", "7", 0, id="deep"
        ),
    ],
)
def test_values(source, expected, score):
    assert code(source, calls(("1", expected)))["score"] == score


@pytest.mark.usefixtures("isolated")
def test_arguments_stand_one_a_line():
    tests = calls(("[1, 2]\n3", "[3, 2, 1]"))
    assert code("def f(a, b): return [b, *a[::-1]]", tests)["score"] == 1


def test_endless_program(way):
    started = time.monotonic()
    reward = code("while True: pass", timeout_s=1.0, **way)
    assert time.monotonic() - started < 60  # its limit, and what a busy machine adds
    assert (reward["score"], reward["timeout"], reward["error"]) == (0, 1, 0)
    assert not programs_left()
    assert code("print(3)\nimport time; time.sleep(60)", timeout_s=0.5, **way)["score"] == 0


@pytest.mark.parametrize(
    "source",
    [
        "import os\nwhile True: os.fork()",
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
        "from threading import *\nwhile 1: Thread(target=Event().wait).start()",
    ],
)
def test_fork_bomb(way, source):
    assert code(source, timeout_s=1.0, **way)["score"] == 0
    assert not programs_left()
    assert code(SUM, **way)["score"] == 1


@pytest.mark.parametrize(
    "source",
    [
        "x = bytearray(10 << 30)\nprint(3)",
        "while True: print('3' * 1000)",
        "import sys\nsys.stdout.write('3\\n' * (9 << 20))",
        "open('x', 'wb').write(bytes(300 << 20))\nprint(3)",
    ],
)
def test_memory_and_output_are_bounded(way, source):
    assert code(source, timeout_s=20.0, **way)["score"] == 0
    assert code(SUM, **way)["score"] == 1


@pytest.mark.usefixtures("isolated")
def test_memory_of_many_processes():
    source = """
import os, time
for _ in range(10):
    if os.fork() == 0:
        break
x = bytearray(60 << 20)
x[::4096] = b"x" * len(x[::4096])
time.sleep(1)
print(3)
"""
    reward = code(source, memory_limit_mb=100, timeout_s=30.0)
    assert (reward["score"], reward["timeout"]) == (0, 0)


def test_exit_alone_is_no_pass(way):
    for source in ("import sys; sys.exit(0)", "import os; os._exit(0)"):
        for tests in (ADD, calls(("1", "7"))):
            assert code(source, tests, **way)["score"] == 0


@pytest.mark.parametrize(
    "tests",
    [
        *BROKEN_GOLDS,
        "not json",
        "[" * 10**5,
        json.dumps({"tests": []}),
        json.dumps({"tests": [{"input": "1"}]}),
        json.dumps({"tests": [{"input": "1", "output": "1", "testtype": "other"}]}),
        json.dumps({"tests": [{"input": "1", "output": " \n", "testtype": "stdin"}]}),
        json.dumps({"tests": [{"input": {}, "output": "1"}]}),
        calls(("1", "1"), name=""),
        calls(("1", "null")),
        calls(("1", "not json")),
        json.dumps({"inputs": ["1"], "outputs": []}),
        json.dumps({"inputs": [], "outputs": []}),
        json.dumps({"inputs": [""], "outputs": [None], "assert_case": ["assert f(1) == 1"]}),
        json.dumps(
            {
                "tests": [
                    {"input": "1", "output": "1", "testtype": "stdin"},
                    {"input": "1", "output": "1", "testtype": "functional"},
                ],
                "fn_name": "f",
            }
        ),
    ],
)
def test_tests_that_cannot_be_read(tests):
    reward = code("def f(x): return x", tests)
    assert (reward["score"], reward["acc"], reward["error"]) == (0, 0, 1)


@pytest.mark.parametrize(
    ("solution", "format_ok", "truncated"),
    [
        (fenced("print("), 1, 0),
        (fenced("x = '\x00'"), 1, 0),
        (fenced("x = '\ud800'"), 1, 0),
        (fenced("(" * 3000), 1, 0),
        ("no block", 0, 0),
        (fenced("print(3)", "cpp"), 0, 0),
        (fenced("print(3)", "c++"), 0, 0),
        ("```python\nprint(3)", 0, 1),
        (fenced(" "), 0, 0),
        ("```print(3)```", 0, 0),
    ],
)
@pytest.mark.usefixtures("isolated")
def test_no_program(solution, format_ok, truncated):
    reward = scored(solution)
    assert (reward["score"], reward["error"]) == (0, 0)
    assert (reward["format_ok"], reward["truncated"]) == (format_ok, truncated)


@pytest.mark.parametrize(
    ("solution", "score"),
    [
        pytest.param(fenced("print(0)") + fenced(SUM), 1, id="last-of-two"),
        pytest.param(fenced(SUM) + fenced("print(0)"), 0, id="last-is-wrong"),
        pytest.param(fenced(SUM) + fenced("3", ""), 1, id="output-without-label"),
        pytest.param(fenced(SUM) + fenced("int main;", "cpp"), 1, id="other-language"),
        pytest.param(fenced("print(0)", "") + fenced(SUM, ""), 1, id="no-labels"),
        pytest.param(fenced(SUM) + "```python\nprint(0", 1, id="one-left-open"),
        pytest.param(fenced(SUM).replace("```", "~~~~"), 1, id="tildes"),
        pytest.param("1. So:\n   ```py\n   if 1:\n     print(3)\n   ```", 1, id="indented"),
        pytest.param(fenced(SUM).replace("\n", "\r\n"), 1, id="windows"),
        pytest.param(f"````python\nx = '''\n```\n'''\n{SUM}\n````", 1, id="longer-fence"),
        pytest.param(f"```Python {{.x}}\n{SUM}\n```", 1, id="attributes"),
        pytest.param(f"<tool_response>{fenced(SUM)}</tool_response> no", 0, id="observation"),
        pytest.param(fenced(SUM) + "<|im_end|>\n<|im_start|>user\nx", 1, id="own-turn"),
    ],
)
@pytest.mark.usefixtures("isolated")
def test_which_block(solution, score):
    assert scored(solution)["score"] == score


@pytest.mark.parametrize(
    "source",
    [
        "import ctypes; ctypes.string_at(0)",
        "raise SystemExit",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; os.close(0); os.close(1); os.close(2); os.abort()",
        "import os, signal; os.kill(1, signal.SIGINT); os.kill(-1, signal.SIGKILL)",
        "import sys; sys.stdin = sys.stdout = None",
    ],
)
def test_crashes(way, source):
    tests = stdin_tests(("1 2", "3"), ("3 4", "7"))
    assert code(source, tests, **way)["passed"] == 0
    crashing_first = f"n = input()\nif n == '1 2':\n    {source}\nprint(7)"
    assert code(crashing_first, tests, **way)["passed"] == 0.5


def test_secrets_home_and_network(way, tmp_path, monkeypatch):
    (tmp_path / "x").write_text("7")
    tmp_path.chmod(0o777)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SECRET", "3")
    source = f"""
import os, socket
for action in (
    lambda: os.remove(os.path.expanduser("~/x")),
    lambda: os.remove({str(tmp_path / "x")!r}),
    lambda: socket.create_connection(("127.0.0.1", 1)),
):
    try:
        action()
        print("done")
    except OSError:
        pass
print(os.environ.get("SECRET", "none"), os.listdir("."))
"""
    assert code(source, stdin_tests(("", "none []")), **way)["score"] == 1
    assert (tmp_path / "x").read_text() == "7"


@pytest.mark.usefixtures("isolated")
def test_share_of_tests_passed():
    half = stdin_tests(("1 2", "3"), ("3 4", "8"))
    reward = code(SUM, half)
    assert (reward["score"], reward["acc"], reward["passed"]) == (0, 0, 0.5)
    assert code(SUM, half, partial=True)["score"] == 0.5
    assert code(SUM, half, partial=True, format_bonus=0.2)["score"] == pytest.approx(0.6)
    assert code(SUM, partial=True)["score"] == 1
    assert code(SUM, half, partial=True, format_bonus=9)["score"] <= 1


@pytest.mark.usefixtures("isolated")
def test_all_tests_count_those_too_that_it_did_not_come_to():
    many = stdin_tests(*[(f"{n} 0", str(n)) for n in range(20)])
    assert code(SUM, many)["acc"] == 1
    assert code("n = int(input().split()[0])\nprint(n if n < 15 else 0)", many)["passed"] == 0.75
    slow = "n = int(input().split()[0])\nprint(n, flush=True)\nwhile n == 10: pass"
    reward = code(slow, many, timeout_s=4.0, partial=True)
    assert (reward["acc"], reward["timeout"]) == (0, 1)
    assert reward["passed"] <= 10 / 20


def test_without_isolation_no_program_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(isolation, "_fault", lambda name: "it is absent")
    marker = tmp_path / "ran"
    tmp_path.chmod(0o777)
    source = f"open({str(marker)!r}, 'w')\n{SUM}"
    for wanted in ("auto", "bubblewrap", "namespaces", "limits", "nonsense", None):
        reward = code(source, isolation=wanted)
        assert (reward["score"], reward["passed"], reward["error"]) == (0, 0, 1)
    assert not marker.exists()


def load_anew():
    runpy.run_path(code_tests.__file__)


def test_without_bubblewrap_one_line_at_load_says_what_is_in_force(monkeypatch, caplog):
    monkeypatch.setattr(isolation.shutil, "which", lambda name: None)
    once.forget()
    with caplog.at_level(logging.WARNING):
        load_anew()
        load_anew()
    (record,) = caplog.records
    said = record.getMessage()
    assert "\n" not in said
    assert said.startswith(
        "code_tests: programs are not run: isolation=bubblewrap does not work here"
    )
    assert "apt install bubblewrap" in said
    assert "isolation=limits, which does NOT isolate" in said


def test_with_bubblewrap_nothing_is_said_at_load(monkeypatch, caplog):
    monkeypatch.setattr(isolation.shutil, "which", lambda name: f"/usr/bin/{name}")
    once.forget()
    with caplog.at_level(logging.WARNING):
        load_anew()
    assert caplog.records == []


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    "tests",
    [
        {"tests": [{"input": "1 2", "output": "3", "testtype": "stdin"}], "fn_name": None},
        [{"input": "1 2", "output": "3", "testtype": "stdin"}],
        {"tests": np.array([{"input": "1 2", "output": "3", "testtype": "stdin"}])},
        {"inputs": ["1 2"], "outputs": ["3"]},
        {"inputs": np.array(["1 2"]), "outputs": np.array(["3"]), "fn_name": None},
        {"inputs": [["1 2"]], "outputs": [["3"]]},
        b'{"inputs": ["1 2"], "outputs": ["3"]}',
    ],
)
def test_forms_of_the_ground_truth(tests):
    assert code(SUM, tests)["score"] == 1
    assert code("print(4)", tests)["score"] == 0


@pytest.mark.usefixtures("isolated")
def test_forms_of_calls():
    double = "def f(x): return x * 2"
    for tests in (
        {"inputs": ["[1]"], "outputs": ["[1, 1]"], "fn_name": "f"},
        {"inputs": [[[1]]], "outputs": [[[1, 1]]], "fn_name": "f"},
        {"inputs": [[[1]]], "outputs": [[1, 1]], "fn_name": "f"},
        {"inputs": [[3]], "outputs": [[6]], "fn_name": "f"},
    ):
        assert code(double, tests)["score"] == 1, tests
    alone = json.loads(calls(("3", "6")))["tests"]
    assert code(double, alone, {"fn_name": "f"})["score"] == 1
    assert code(double, alone, {"func_name": "g"})["score"] == 0
    assert code(double, alone)["error"] == 1


@pytest.mark.usefixtures("isolated")
def test_from_threads_and_inside_a_running_loop():
    found = []
    threads = [threading.Thread(target=lambda: found.append(code(SUM))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def inside():
        return code(SUM)

    assert [reward["score"] for reward in (*found, asyncio.run(inside()))] == [1] * 7
    assert not programs_left()


def test_same_keys_and_never_an_exception():
    for solution in BROKEN_SOLUTIONS:
        assert scored(solution)["score"] == 0


@pytest.mark.usefixtures("isolated")
def test_one_score_each_and_the_program_whole():
    sources = [SUM, "print(4)", "", "x" * 100, SUM + "\n"]
    rewards = [code(source) for source in sources]
    assert [reward["score"] for reward in rewards] == [1, 0, 0, 0, 1]
    assert rewards[3]["pred"] == "x" * 100


@pytest.mark.usefixtures("isolated")
def test_missing_extras():
    for extra_info in (None, {}, {"index": 3}, "text", np.array([1])):
        assert code(SUM, ADD, extra_info, unknown=1)["score"] == 1


def test_picklable():
    assert pickle.loads(pickle.dumps(compute_score)) is compute_score


@pytest.mark.usefixtures("isolated")
def test_open_files_do_not_add_up():
    code(SUM)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        code(SUM)
    assert len(os.listdir("/proc/self/fd")) == before
