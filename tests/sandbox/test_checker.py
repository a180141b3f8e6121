"""Tests use the program in its own process as if it were their own."""

import pytest
from sandbox_host import needs_bubblewrap

from groupwise.sandbox import Result, run_python

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
