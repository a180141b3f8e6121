"""What a caller gets: statuses, values, input, output, host functions, several at once."""

import asyncio
import math
import os
import platform
import subprocess
import sys
import time
from typing import Any

import pytest
from sandbox_host import SHORT, needs_bubblewrap

from groupwise.sandbox import (
    Described,
    Limits,
    ProgramTests,
    Result,
    run_python,
    run_python_async,
)

pytestmark = needs_bubblewrap


@pytest.mark.parametrize(
    ("tests", "status"),
    [("assert f(1) == 2", "passed"), ("assert f(1) == 3", "failed"), (None, "passed")],
)
def test_tests_decide(tests: str | None, status: str) -> None:
    result = run_python("def f(x):\n    return x + 1", tests=tests)
    assert result.status == status
    assert result.in_tests or status == "passed"
    assert result.duration_s > 0


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 7, -(2**70), 1.5, -0.0, math.inf, "héé\n", "", b"ab", 1j),
        *([1, [2.0]], (1, (2,)), {1: "a", "b": [None]}, {1, 2}, frozenset({3})),
    ],
)
def test_the_value_of_the_last_line_comes_back(value: object) -> None:
    program = repr(value) if value != math.inf else "float('inf')"
    result = run_python(program)
    assert (result.status, repr(result.value)) == ("passed", repr(value))


def test_values_of_the_standard_library_are_described() -> None:
    program = (
        "from collections import *\nfrom decimal import Decimal\nimport datetime as d\n"
        "P = namedtuple('P', 'x y')\n"
        "[Counter('aab'), deque([1], 3), Decimal('1.50'), d.date(2020, 1, 2), P(1, 2), range(3)]"
    )
    assert run_python(program).value == [
        Described("Counter", "Counter({'a': 2, 'b': 1})"),
        Described("deque", "deque([1], maxlen=3)"),
        Described("Decimal", "Decimal('1.50')"),
        Described("date", "datetime.date(2020, 1, 2)"),
        Described("P", "P(x=1, y=2)"),
        Described("range", "range(0, 3)"),
    ]


@pytest.mark.parametrize("program", ["lambda: 1", "object()", "print"])
def test_what_is_no_data_is_described(program: str) -> None:
    result = run_python(program)
    assert (result.status, type(result.value)) == ("passed", Described)


@pytest.mark.parametrize("program", ["x = 1", "", "None"])
def test_without_a_value_there_is_none(program: str) -> None:
    assert run_python(program).value is None


def test_what_is_printed_comes_back_up_to_its_limit() -> None:
    assert run_python("print('a', 1)\nprint('é')").stdout == "a 1\né\n"
    result = run_python("print('a' * 10**6)", limits=SHORT)
    assert 0 < len(result.stdout) <= SHORT.output_kib * 1024


def test_the_program_reads_its_input() -> None:
    result = run_python("print(int(input()) * 2)\nprint(input())", stdin="21\nx\n")
    assert (result.status, result.stdout) == ("passed", "42\nx\n")
    assert run_python("input()").error == "EOFError"


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ("def f(:", "SyntaxError", "invalid syntax"),
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("import numpy", "ModuleNotFoundError", "No module named 'numpy'"),
        ("class MyError(Exception): pass\nraise MyError('why')", "MyError", "why"),
        ("import sys\nsys.exit(3)", "SystemExit", "3"),
        ("x = '\\ud800'\nprint(x)", "UnicodeEncodeError", "surrogates"),
    ],
)
def test_an_error_has_its_class_and_text(program: str, error: str, message: str) -> None:
    result = run_python(program)
    assert (result.status, result.error, result.in_tests) == ("failed", error, False)
    assert message in result.message


def test_a_program_sees_itself_as_main() -> None:
    program = "if __name__ == '__main__':\n    print('main')\nimport __main__\n__main__.__name__"
    assert (run_python(program).stdout, run_python(program).value) == ("main\n", "__main__")


def test_the_standard_library_is_there_and_nothing_else() -> None:
    program = (
        "import sqlite3, zlib, ssl, unittest, csv, hashlib, zoneinfo\nhashlib.md5(b'').hexdigest()"
    )
    assert run_python(program).value == "d41d8cd98f00b204e9800998ecf8427e"
    program = "import sys, os\n[p for p in sys.path if 'site-packages' in p or not p], os.getcwd()"
    assert run_python(program).value == ([], "/tmp")


def run_elsewhere(command: list[str], **given: Any) -> str:
    """Return what a process that is not as this one prints of a run."""
    code = (
        "from groupwise.sandbox import run_python\n"
        "r = run_python('6 * 7', tests='assert True')\n"
        "print(r.status, r.value, 'threads' in r.in_force, r.message)"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **given,
    )
    if done.returncode != 0:
        pytest.skip(f"no process of that kind can be had here: {done.stderr[-200:]}")
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_it_works_for_who_is_not_root() -> None:
    # Another user may often not read the interpreter of root's environment.
    python = f"/usr/bin/python3.{sys.version_info.minor}"
    said = run_elsewhere([python], user=65534, group=65534, extra_groups=[], cwd="/")
    assert said.split() == ["passed", "42", "True"]


def test_where_namespaces_are_forbidden_it_is_refused_in_a_sentence() -> None:
    shell = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"'
    said = run_elsewhere(["unshare", "--user", "-r", "sh", "-c", shell, sys.executable])
    assert said.startswith("refused None False bubblewrap is installed but cannot make a sandbox")
    assert "allow user namespaces" in said


def test_a_result_says_which_limits_were_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    always = {"clock", "output", "processor_time", "address_space", "files"}
    in_force = set(run_python("1").in_force)
    assert in_force >= always
    assert ("system_calls" in in_force) == (platform.machine() in ("x86_64", "aarch64"))
    monkeypatch.setattr("groupwise.sandbox.cpython.build_program_filter", lambda **_: b"")
    in_force = set(run_python("1").in_force)
    assert in_force >= always
    assert "system_calls" not in in_force


def test_processor_time_is_limited_on_its_own() -> None:
    limits = Limits(timeout_s=30, cpu_s=1)
    result = run_python("while True: pass", limits=limits)
    assert (result.status, result.message) == ("timeout", "it used up its processor time")


def test_tests_may_take_a_builtins_name_only_if_it_is_the_entry_point() -> None:
    program = "def sum(a, b):\n    return 10 * a + b"
    tests = "assert sum(1, 2) == 12"
    assert run_python(program, tests=tests).error == "TypeError"
    assert run_python(program, tests=ProgramTests(tests, "sum")).status == "passed"


def test_many_run_at_once_and_none_takes_the_time_of_another() -> None:
    async def run_all() -> list[Result]:
        runs = (run_python_async(f"{n} * 2", limits=SHORT) for n in range(40))
        return await asyncio.gather(*runs)

    assert [result.value for result in asyncio.run(run_all())] == list(range(0, 80, 2))


def test_a_run_that_is_given_up_leaves_nothing() -> None:
    async def give_up() -> float:
        run = asyncio.ensure_future(run_python_async("while True: pass"))
        await asyncio.sleep(0.3)
        run.cancel()
        start_s = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await run
        return time.monotonic() - start_s

    assert asyncio.run(give_up()) < 3


def test_it_may_be_called_where_a_loop_runs() -> None:
    async def call() -> Result:
        return run_python("6 * 7")

    assert asyncio.run(call()).value == 42


CHAINS = """
import asyncio
async def chain(first):
    await call(first)
    return await call("second")
async def whole():
    return await asyncio.gather(chain("slow"), chain("quick"), chain("quick"))
await whole()
"""


def run_in_order(program: str, functions: Any) -> Result:
    work = run_python_async(program, functions=functions, limits=SHORT, is_in_order=True)
    return asyncio.run(work)


@pytest.mark.parametrize("slow", ["slow", "quick"])
def test_calls_come_in_an_order_that_does_not_depend_on_who_is_slow(slow: str):
    seen: list[str] = []

    async def call(word: str) -> int:
        seen.append(word)
        number = seen.count(word)
        await asyncio.sleep(0.1 if word == slow else 0.0)
        return number

    result = run_in_order(CHAINS, {"call": call})
    assert (result.status, result.value) == ("passed", [1, 2, 3])
    assert seen == ["slow", "quick", "quick", "second", "second", "second"]


def test_calls_at_the_same_time_are_answered_at_the_same_time():
    both = asyncio.Barrier(2)

    async def call(word: str) -> str:
        await both.wait()
        return word

    program = "import asyncio\nawait asyncio.gather(call('a'), call('b'))"
    assert run_in_order(program, {"call": call}).value == ["a", "b"]


def test_nothing_else_of_asyncio_is_there():
    async def fail() -> None:
        raise ValueError("so")

    result = run_in_order("import asyncio\nawait asyncio.sleep(1)", {"fail": fail})
    assert (result.status, result.error) == ("failed", "AttributeError")
    result = run_in_order("await fail()", {"fail": fail})
    assert (result.status, result.error, result.message) == ("failed", "ValueError", "so")


FORGE = """
import sys
frame = sys._getframe()
while 'server' not in frame.f_locals:
    frame = frame.f_back
frame.f_locals['channel'].send({message})
frame.f_locals['server'].serve()
"""


@pytest.mark.parametrize(
    "message",
    [
        {"ok": {"x": ["fractions", "Fraction", "1e30000000"]}},
        {"ok": {"x": ["decimal", "Decimal", "zz"]}},
        {"ok": {"s": [{"d": [[{"s": []}, 1]]}]}},
        {"error": 3},
        {"error": {"class": [1], "text": {}, "args": []}},
        {},
    ],
)
def test_a_program_that_forges_its_own_value_has_crashed(message: Any) -> None:
    program = FORGE.replace("{message}", repr(message)) + "def f(): return 1"
    result = run_python(program, tests="assert f() == 1", limits=Limits(timeout_s=3))
    assert (result.status, result.value) == ("crashed", None)


@pytest.mark.parametrize(
    ("module", "name", "fields"),
    [
        ("decimal", "Decimal", "__str__ = lambda self: 'zz'"),
        ("fractions", "Fraction", "__str__ = lambda self: '1/0'"),
        ("fractions", "Fraction", "__str__ = lambda self: '1e30000000'"),
        ("datetime", "timedelta", "days, seconds, microseconds = 10**300, 0, 0"),
        ("datetime", "date", "isoformat = lambda self: '2020-13-45'"),
    ],
)
def test_a_class_under_a_known_name_harms_nobody(module: str, name: str, fields: str) -> None:
    program = f"import {module}\nclass Own:\n    {fields}\n{module}.{name} = Own\n"
    result = run_python(f"{program}Own()")
    assert (result.status, type(result.value)) == ("passed", Described)
    tests = "import " + module + "\nif f() == 1: pass"
    short = Limits(timeout_s=1.0)
    result = run_python(f"{program}def f(): return Own()", tests=tests, limits=short)
    assert result.status in ("crashed", "timeout")


def test_errors_say_what_can_be_written_to_a_file() -> None:
    result = run_python("raise ValueError('\\ud800' + 'a' * 10_000)")
    assert (result.status, result.error) == ("failed", "ValueError")
    assert result.message.startswith("\\ud800aaa")
    assert len(result.message) <= 2010


@pytest.mark.parametrize(
    "program", ["10 ** 5000", "'a' * (1 << 21)", "[0] * 20_000", "[[1] * 200] * 200"]
)
def test_large_values_are_described(program: str) -> None:
    result = run_python(program)
    assert (result.status, type(result.value)) == ("passed", Described)
