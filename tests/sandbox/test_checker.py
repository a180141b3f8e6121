"""Tests use the program in its own process as if it were their own."""

import asyncio
import socket
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sandbox_host import SHORT, needs_bubblewrap, read_host_state

from groupwise.core import SandboxError
from groupwise.sandbox import Limits, Result, run_python, run_python_async
from groupwise.sandbox.calls import Caller
from groupwise.sandbox.guest.channel import Channel, frame
from groupwise.sandbox.host_functions import HostFunctions

pytestmark = needs_bubblewrap

SHAPES = """
import collections, enum, math

class Shape:
    count = 0
    def __init__(self, width, height=1):
        self.width, self.height = width, height
    def area(self): return self.width * self.height
    def __eq__(self, other): return isinstance(other, Shape) and self.area() == other.area()
    def __lt__(self, other): return self.area() < other.area()
    def __add__(self, other): return Shape(self.area() + getattr(other, 'area', lambda: other)())
    def __len__(self): return self.width
    def __getitem__(self, index): return [self.width, self.height][index]
    def __setitem__(self, index, value): self.width = value
    def __contains__(self, item): return item in (self.width, self.height)
    def __iter__(self): return iter([self.width, self.height])
    def __call__(self, factor): return Shape(factor * self.width, factor * self.height)
    def __bool__(self): return self.width > 0
    def __hash__(self): return self.width
    def __str__(self): return f'{self.width}x{self.height}'
    def __enter__(self): return self
    def __exit__(self, *error): return False
    @property
    def wide(self): return self.width > self.height
    @classmethod
    def square(cls, size): return cls(size, size)

class Square(Shape): pass
class NoShape(ValueError): pass
class Items(list):
    def total(self): return sum(self)
class Color(enum.IntEnum):
    RED = 1

def make(width): return Shape(width)
def refuse(why): raise NoShape(why)
def count_up():
    number = 0
    while True:
        yield number
        number += 1
def apply(function, items): return [function(item) for item in items]
def sort_in_place(items): items.sort()
def put(table, key, value): table[key] = value; table['inner'].append(value)
async def later(x): return x + 1
total = 0
def add(x):
    global total
    total += x
"""


def check(tests: str) -> Result:
    return run_python(SHAPES, tests=tests)


@pytest.mark.parametrize(
    "tests",
    [
        "s = Shape(2, height=3)\nassert s.area() == 6 and s.width == 2 and not s.wide",
        "assert Shape(2, 3) == Shape(3, 2) and Shape(2) != Shape(3)",
        "assert Shape(1) < Shape(2) and sorted([Shape(2), Shape(1)])[0].width == 1",
        "assert (Shape(1) + Shape(2)).area() == 3 and (Shape(1) + 4).area() == 5",
        "s = Shape(2, 5)\nassert len(s) == 2 and s[1] == 5 and list(s) == [2, 5] and 5 in s",
        "s = Shape(2)\ns[0] = 7\nassert s.width == 7\ns.height = 4\nassert s.area() == 28",
        "assert Shape(2)(3).area() == 18 and not Shape(0) and Shape(1)",
        "assert str(Shape(2, 3)) == '2x3' == f'{Shape(2, 3)}'",
        "assert len({Shape(1), Shape(1)}) == 1 and {Shape(1): 'a'}[Shape(1)] == 'a'",
        "assert isinstance(make(1), Shape) and not isinstance(1, Shape)",
        "assert isinstance(Square.square(2), Shape) and not isinstance(make(1), Square)",
        "with Shape(3) as s:\n    assert s.width == 3",
        "with Shape(1), Shape(2) as s:\n    pass\nassert s.width == 2",
        "try:\n    refuse('no')\nexcept NoShape as e:\n    why = str(e)\nassert why == 'no'",
        "try:\n    refuse('no')\nexcept ValueError as e:\n    assert e.args == ('no',)",
        "try:\n    Shape()\nexcept TypeError:\n    pass\nelse:\n    assert 0",
        "try:\n    Shape(1).colour\nexcept AttributeError:\n    pass\nelse:\n    assert 0",
        "import itertools\nassert list(itertools.islice(count_up(), 3)) == [0, 1, 2]",
        "c = count_up()\nassert next(c) == 0 and next(c) == 1",
        "assert apply(lambda x: x * 2, [1, 2]) == [2, 4] and apply(abs, (-1,)) == [1]",
        "calls = []\napply(calls.append, [1, 2])\nassert calls == [1, 2]",
        "l = [3, 1, 2]\nm = l\nsort_in_place(l)\nassert m == [1, 2, 3] and m is l",
        "t = {'inner': []}\ni = t['inner']\nput(t, 'a', 1)\nassert t['a'] == 1 and i == [1]",
        "add(2)\nadd(3)\nassert total == 5",
        "assert math.pi > 3 and collections.Counter('aa')['a'] == 2",
        "items = Items([1, 2])\nassert items == [1, 2] and items.total() == 3 and len(items) == 2",
        "assert Color.RED == 1 and Color.RED + 1 == 2 and abs(Color.RED - 1) < 1",
        "import asyncio\nassert asyncio.run(later(1)) == 2",
        "c = later(1)\nassert make(c).width is not None and await c == 2",
        "import math as m\nassert apply(lambda x: x, [m]) == [m]",
        "assert await later(1) == 2",
        "from unittest import TestCase\nTestCase().assertEqual(make(2).area(), 2)",
        "assert hasattr(make(1), 'area') and not hasattr(make(1), 'colour')",
        "assert [s.width for s in map(make, range(3))] == [0, 1, 2]",
        "f = make\nassert f(4).area() == 4 and callable(f)",
        "assert Shape.count == 0",
    ],
)
def test_what_holds_in_one_process_holds_in_two(tests: str) -> None:
    result = check(tests)
    assert result.status == "passed", result
    alone = run_python(SHAPES + tests)
    assert alone.status == "passed", alone


@pytest.mark.parametrize(
    ("tests", "error"),
    [
        ("assert make(1) == 1", "AssertionError"),
        ("assert make(1) - 1 == 0", "TypeError"),
        ("assert make(1) + 1 == 2", "AssertionError"),
        ("assert make(1) < 2", "NoDataError"),
        ("assert float(make(1)) == 1", "TypeError"),
        ("assert 1 in make(2)(1)\nassert 4 in make(2)", "AssertionError"),
        ("assert missing == 1", "NameError"),
        ("refuse('no')", "NoShape"),
        ("1 / 0", "ZeroDivisionError"),
        ("x = (", "SyntaxError"),
        ("import sys\nsys.exit(0)", "SystemExit"),
    ],
)
def test_what_fails_has_its_error(tests: str, error: str) -> None:
    result = check(tests)
    assert (result.status, result.error, result.in_tests) == ("failed", error, True)


@pytest.mark.parametrize(
    "tests",
    [
        "class Mine: pass\nmake(Mine().__dict__)\nmake(Mine())",
        "import collections\nl = collections.deque()\nl.append(l)\nmake(l)",
        "import io\nmake(io.StringIO('a'))",
    ],
)
def test_what_cannot_be_handed_over_is_refused_and_not_failed(tests: str) -> None:
    result = check(tests)
    assert result.status == "refused"
    assert "cannot be handed over" in result.message


@pytest.mark.parametrize(
    "tests",
    [
        "l, t = [], {'inner': []}\nl.append(l)\nput(t, 'a', l)\nassert t['inner'][0] is l is l[0]",
        "d = {}\nd['me'] = d\nput(d['me'] | {'inner': []}, 'a', 1)\nassert make(d).height == 1",
        "l = 0\nfor _ in range(400): l = [l]\nassert apply(len, l) == [1]",
    ],
)
def test_what_contains_itself_or_is_deep_is_handed_over(tests: str) -> None:
    result = check(tests)
    assert result.status == "passed", result


def test_a_module_of_the_program_does_not_make_its_tests_unusable() -> None:
    """Else a program could name a module as its tested function, and get no score instead of 0."""
    assert check("assert enum.IntEnum").status == "crashed"


@pytest.mark.parametrize("tests", ["assert make(later(1)) == 1", "assert make(math) == 1"])
def test_what_the_program_gave_is_handed_back(tests: str) -> None:
    """Else a program could return a coroutine where its tests go on with it, for no score."""
    assert check(tests).error == "AssertionError"


def test_what_was_refused_cannot_be_swallowed() -> None:
    tests = "import io\ntry:\n    make(io.StringIO())\nexcept BaseException:\n    pass"
    assert check(tests).status == "refused"


# Every message of the program is one that was, now and then, changed somewhere or made up.
FUZZ = """
import os, random, sys
draw = random.Random({seed})
frame = sys._getframe()
while "server" not in frame.f_locals: frame = frame.f_back
server, calls = frame.f_locals["server"], frame.f_locals["calls"]
odd = [None, True, -1, 1 << 80, 1e999, "", "\\ud800", "o", "__class__", [], {{}}, [[]] * 9]
odd += [{{"o": 0}}, {{"l": [0]}}, {{"x": ["decimal", "Decimal", "zz"]}}, {{"E": 0}}, {{"k": -1}}]
odd += [{{"&": [3]}}, {{"m": "os"}}]
words = "ok error callback get after held handle printed environment args kwargs number".split()
def spoil(value):
    if draw.random() < {share}: return draw.choice(odd)
    if type(value) is list: return [spoil(item) for item in value]
    if type(value) is dict:
        value = {{key: spoil(item) for key, item in value.items()}}
        if draw.random() < {share}: value[draw.choice(words)] = draw.choice(odd)
    return value
def wrap(channel):
    send = type(channel).send
    def send_spoiled(message):
        if draw.random() < {share} / 4: os.write(channel.writing, draw.randbytes(20))
        try: send(channel, spoil(message))
        except (TypeError, ValueError): send(channel, draw.choice(odd[:6]))
    channel.send = send_spoiled
wrap(server.channel)
wrap(calls)
class Box(list):
    def __init__(self, *items): super().__init__(items); self.held = [1]
    def __eq__(self, other): return True
def make(x): return Box(x, {{x}}, ask(x), ValueError(x))
def apply(f, x): return f(x) + [x]
"""
TESTS = """
import contextlib, io, os
os.environ["A"] = "b"
with contextlib.redirect_stdout(io.StringIO()):
    for n in range(5):
        box = make(n)
        items = [n]
        apply(lambda x: [x], items)
        assert box.held == [1] and len(box) == 4 and str(box) and items == [n]
raise ZeroDivisionError
"""


@pytest.mark.parametrize("share", [0.002, 0.02, 0.2])
def test_spoiled_messages_end_in_a_result_that_is_no_pass(share: float) -> None:
    async def run_all() -> list[Any]:
        async def ask(x: Any) -> Any:
            return x

        limits = Limits(timeout_s=2, memory_mib=192)
        return await asyncio.gather(
            *(
                run_python_async(
                    FUZZ.format(seed=seed, share=share),
                    tests=TESTS,
                    functions={"ask": ask},
                    limits=limits,
                )
                for seed in range(12)
            )
        )

    before = read_host_state()
    for seed, result in enumerate(asyncio.run(run_all())):
        assert result.status in ("failed", "crashed", "timeout", "memory"), (seed, result)
        f"{result.message}{result.error}{result.stdout}".encode()
    assert read_host_state().resident_mib < before.resident_mib + 64


async def answer(data: bytes, functions: dict[str, Any], *, max_calls: int = 50) -> bytes:
    """Return what is answered to what a program writes, until nothing more is read of it."""
    end, inside = socket.socketpair()
    inside.setblocking(False)
    host = HostFunctions(functions, max_calls=max_calls)
    with end, inside:
        answers = asyncio.ensure_future(Caller(end, host).answer_all())
        await asyncio.get_running_loop().sock_sendall(inside, data)
        inside.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(answers, 20)
        await host.close()
        said = b""
        while part := inside.recv(1 << 20):
            said += part
        return said


_calls = st.fixed_dictionaries(
    {
        "number": st.one_of(st.integers(), st.booleans(), st.text(max_size=3)),
        "name": st.sampled_from(["f", "g", "__class__", "", 3]),
        "args": st.lists(st.integers() | st.text(max_size=3), max_size=3) | st.none(),
        "kwargs": st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    }
)


@settings(max_examples=50)
@given(st.lists(_calls.map(frame) | st.binary(max_size=20), max_size=5).map(b"".join))
@example(b"\xff\xff\xff\xff")
@example(b"\x00\x00\x00\x02[]")
@example(b"\x00\x01\x00\x00" + b"[" * (1 << 16))
@example(b"\x00\x00\x17\x70" + b"1" * 6000)
def test_calls_of_any_form_are_answered_or_no_longer_read(data: bytes) -> None:
    asyncio.run(answer(data, {"f": lambda *args: list(args)}))


def test_calls_at_work_together_are_bounded() -> None:
    """20 calls of 4 MiB took 2.9 GB, and everything else waited for 10 s."""
    num_at_work = most_at_work = num_turns = 0

    async def work(_: str) -> None:
        nonlocal num_at_work, most_at_work
        num_at_work += 1
        most_at_work = max(most_at_work, num_at_work)
        await asyncio.sleep(0.01)
        num_at_work -= 1

    async def count_turns() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        large = {"number": 1, "name": "work", "args": ["a" * (1 << 21)], "kwargs": {}}
        turns = asyncio.ensure_future(count_turns())
        await answer(frame(large) * 20, {"work": work})
        turns.cancel()

    asyncio.run(run())
    assert 1 < most_at_work <= 5
    assert num_turns > 20


@pytest.mark.parametrize(
    ("args", "num_calls", "most_answers"),
    [
        pytest.param([[]] * 30_000, 1, 0, id="parts"),
        pytest.param(["a" * (1 << 22)], 1, 0, id="length"),
        pytest.param(["a" * 1000], 100, 63, id="all together"),
    ],
)
def test_a_program_that_sends_too_much_is_not_listened_to(
    args: list[Any], num_calls: int, most_answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "groupwise.sandbox.calls._MAX_ALL_BYTES", 1 << (16 if num_calls > 1 else 26)
    )
    num_called = 0

    async def count(*_: Any) -> None:  # no thread, which may begin late
        nonlocal num_called
        num_called += 1

    data = frame({"number": 1, "name": "count", "args": args, "kwargs": {}}) * num_calls

    async def run() -> None:
        try:
            await answer(data, {"count": count}, max_calls=1000)
        except BrokenPipeError:
            return

    asyncio.run(run())
    # The last ones had not begun when it was closed.
    assert most_answers - 3 <= num_called <= most_answers


def test_a_program_that_is_not_listened_to_does_not_wait() -> None:
    functions = {"count": lambda *_: 1}
    result = run_python("count([[]] * 30_000)", functions=functions, limits=SHORT)
    assert (result.status, result.error) == ("failed", "EOFError")


def test_a_message_that_is_too_deep_is_refused() -> None:
    ends = socket.socketpair()
    with ends[0], ends[1]:
        fine, deep = [[[1], 2], *[[]] * 20], [[[[1]]], *[[]] * 20]
        for message in (fine, deep):
            ends[0].sendall(frame(message))
        number = ends[1].fileno()
        channel = Channel(number, number, max_depth=4)
        assert channel.receive() == fine
        with pytest.raises(ValueError, match="too deep"):
            channel.receive()


class Operators:
    """Host functions that write down how they were called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.num_at_work = self.most_at_work = 0

    async def ask(self, question: str, *, times: int = 1) -> str:
        self.calls.append(("ask", question, times))
        self.num_at_work += 1
        self.most_at_work = max(self.most_at_work, self.num_at_work)
        await asyncio.sleep(0.05)
        self.num_at_work -= 1
        return question.upper() * times

    def add(self, numbers: list[int]) -> int:
        self.calls.append(("add", numbers))
        return sum(numbers)

    async def fail(self) -> None:
        raise ValueError("no operator")

    def as_functions(self) -> dict[str, Any]:
        return {"ask": self.ask, "add": self.add, "fail": self.fail}


def test_a_program_calls_functions_that_are_awaited_or_not() -> None:
    operators = Operators()
    program = (
        "async def solve(problem):\n"
        "    answer = await ask(problem, times=2)\n"
        "    return [answer, add([1, 2])]\n"
        "await solve('ab')"
    )
    result = run_python(program, functions=operators.as_functions())
    assert (result.status, result.value) == ("passed", ["ABAB", 3])
    assert operators.calls == [("ask", "ab", 2), ("add", [1, 2])]


def test_calls_that_are_gathered_are_at_work_together() -> None:
    operators = Operators()
    program = "import asyncio\nawait asyncio.gather(ask('a'), ask('b'), ask('c'))"
    result = run_python(program, functions=operators.as_functions())
    assert result.value == ["A", "B", "C"]
    assert operators.most_at_work == 3


def test_an_error_of_a_function_can_be_caught() -> None:
    program = "try:\n    await fail()\nexcept ValueError as e:\n    said = str(e)\nsaid"
    result = run_python(program, functions=Operators().as_functions())
    assert result.value == "no operator"
    result = run_python("await fail()", functions=Operators().as_functions())
    assert (result.status, result.error) == ("failed", "ValueError")


def test_only_json_values_are_handed_over() -> None:
    functions = {"add": Operators().add, "odd": lambda: object()}
    result = run_python("add({1, 2})", functions=functions)
    assert (result.status, result.error) == ("failed", "TypeError")
    result = run_python("odd()", functions=functions)
    assert (result.status, result.error) == ("failed", "TypeError")


def test_the_number_of_calls_is_limited() -> None:
    operators = Operators()
    program = "while True: add([1])"
    limits = Limits(num_host_calls=5)
    result = run_python(program, functions=operators.as_functions(), limits=limits)
    assert (result.status, result.error) == ("failed", "RuntimeError")
    assert len(operators.calls) == 5


def test_waiting_for_the_host_does_not_count_as_the_programs_time() -> None:
    async def slow() -> int:
        await asyncio.sleep(1.0)
        return 1

    limits = Limits(timeout_s=0.6)
    result = run_python("await slow()", functions={"slow": slow}, limits=limits)
    assert (result.status, result.value) == ("passed", 1)


def test_the_hosts_time_is_limited_too() -> None:
    async def never() -> None:
        await asyncio.sleep(60)

    start_s = time.monotonic()
    limits = Limits(host_timeout_s=0.3)
    result = run_python("await never()", functions={"never": never}, limits=limits)
    assert (result.status, result.message) == ("timeout", "the host functions took too long")
    assert time.monotonic() - start_s < 20


def test_a_program_that_does_not_wait_uses_its_own_time() -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    program = "import asyncio\nt = asyncio.ensure_future(slow())\nawait asyncio.sleep(0)\n"
    program += "while True: pass"
    limits = Limits(timeout_s=0.5, cpu_s=1, host_timeout_s=30)
    result = run_python(program, functions={"slow": slow}, limits=limits)
    assert (result.status, result.message) == ("timeout", "it used up its processor time")


@pytest.mark.parametrize("name", ["a b", "print", "", "1x"])
def test_names_that_cannot_be_called_are_errors(name: str) -> None:
    with pytest.raises(SandboxError, match="cannot call"):
        run_python("1", functions={name: lambda: 1})


def test_many_workflows_run_at_once() -> None:
    operators = Operators()

    async def run_all() -> list[Result]:
        runs = (
            run_python_async(f"await ask('{n}')", functions=operators.as_functions())
            for n in range(40)
        )
        return await asyncio.gather(*runs)

    results = asyncio.run(run_all())
    assert [result.value for result in results] == [str(n) for n in range(40)]
    assert operators.most_at_work > 4
