"""Monty may only decide what is the same in CPython: known differences are left to CPython."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_host import MISSING, needs_bubblewrap

from groupwise.sandbox import run_python
from groupwise.sandbox.subset import can_assert, find_obstacle, split_last_value

# Programs for which Monty gives, without an error, another value than CPython.
DIFFERENT = {
    "map_is_no_list": "def f():\n    return map(str, [1])\nx = f() == ['1']",
    "generator_is_no_list": "x = (i for i in [1])\ny = x == [1]",
    "zip_is_used_up": "z = zip([1], [2])\nx = [list(z), list(z)]",
    "enumerate_sees_changes": (
        "l = [1, 2, 3]\nx = []\nfor i, a in enumerate(l):\n    x.append(a)\n    l[2] = 9\n"
    ),
    "reversed_sees_changes_by_another_name": (
        "l = [1, 2, 3]\nm = l\nx = []\nfor a in reversed(l):\n    x.append(a)\n    m[0] = 9\n"
    ),
    "order_of_a_set": "x = list({8, 1, 16})",
    "order_of_a_set_with_a_name": "s = set([8, 1])\nx = [a for a in s]",
    "truth_of_an_instance": "class A:\n    def __bool__(self): return False\nx = bool(A())",
    "value_that_is_a_range": "x = 1\nrange(3)",
    "nan_is_itself": "n = float('nan')\nx = [n] == [n]",
    "identity_of_numbers": "a = 5\nx = a is 5",
    "halves_of_characters": "print('\\ud800')",
    "any_stops_early": (
        "seen = []\ndef f(a):\n    seen.append(a)\n    return True\n"
        "any(f(a) for a in [1, 2])\nx = seen"
    ),
    "next_of_a_generator": "x = next(i for i in [1, 2])",
    "hash": "x = hash('a')",
    "regular_expression": "import re\nx = re.findall('a', 'a')",
    "formats": "x = f'{1.5:>10}'",
    "percent": "x = '%5.1f' % 1.5",
    "digits_of_round": "x = round(2.675, 2)",
    "equal_keys_shown": "x = {1: 'a', True: 'b'}",
    "equal_keys_counted": "x = {a: a for a in [0.0, -0.0]}",
    "equal_keys_stored": "x = {}\nx[1] = 'a'\nx[1.0] = 'b'",
    "equal_keys_in_an_argument": "def f(**x):\n    x[1] = 'a'\n    x[True] = 'b'\n    return x",
    "equal_keys_merged": "x = {0: 1} | {0: 2}",
    "equal_keys_updated": "x = {0: 1}\nx.update([(False, 2)])",
    "equal_keys_of_pairs": "x = dict([(1, 'a'), (True, 'b')])",
    "equal_keys_of_a_maker": "x = list(map(dict, [[(1, 'a'), (True, 'b')]]))",
    "equal_keys_of_a_counter": "from collections import Counter\nx = Counter([1, True])",
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_monty_does_otherwise_is_left_to_cpython(name: str) -> None:
    assert find_obstacle(DIFFERENT[name], "") is not None or "range(3)" in DIFFERENT[name]
    assert run_python(DIFFERENT[name], backend="monty").status == "refused"


@pytest.mark.parametrize(
    ("program", "tests", "obstacle"),
    [
        ("abs = 3", "", "an? abs of its own"),
        ("def f(sum):\n    return sum", "", "a sum of its own"),
        ("def check(f): pass", "def check(f): pass", "both have check"),
        ("def f(x): return g(x)", "def g(x): return 4", "both have g"),
        ("x = 1\x0c\ny = 2", "", "line ends"),
        ("def f(:", "", "does not parse"),
        ("def f(x):\n    global y\n    y = 1", "", "Global"),
        ("try:\n    x = 1\nexcept Exception:\n    pass", "", "Try"),
        ("class A: pass", "", "ClassDef"),
        ("import os", "", "import os"),
        ("x = ().__class__", "", "__class__"),
        ("x = getattr(1, 'real')", "", "getattr"),
        ("(" * 500 + ")" * 500, "", "parse|deep"),
    ],
)
def test_an_obstacle_has_its_reason(program: str, tests: str, obstacle: str) -> None:
    found = find_obstacle(program, tests)
    assert found is not None
    import re

    assert re.search(obstacle, found)


@pytest.mark.parametrize(
    "program",
    [
        "def f(n):\n    return [i * i for i in range(n) if i % 2]",
        "from typing import List\ndef f(a: List[int]) -> int:\n    return sum(x for x in a)",
        "for i, x in enumerate([1, 2]):\n    print(i, x, sep='-')",
        "x = len(set([1, 1])) == len({1})",
        "import math\nx = math.sqrt(4) + math.pi",
        "a, b = map(int, '1 2'.split())",
        "x = all(a > 0 for a in [1])",
        "def f(x):\n    if not isinstance(x, (int, list)):\n        raise ValueError('x')\n",
        "about = {'author': 'me'}\nx = [1, 2]\nx[0] = 3",
        "def f(x: dict) -> dict:\n    return {'a': 1}\nx = f({})\nx['b'] = 2",
        "x = isinstance([], dict) or dict() == {1: 2, 3: 4}",
    ],
)
def test_ordinary_programs_are_monty_s(program: str) -> None:
    assert find_obstacle(program, "") is None
    assert run_python(program).backend == "monty"


def test_dicts_of_one_source_are_stored_in_by_the_other() -> None:
    program = "def f(x):\n    x[1] = 2\n    x[True] = 3\n    return x"
    assert find_obstacle(program, "y = [4, 5]\nf(y)") is None
    assert find_obstacle(program, "assert str(f({})) == '{1: 3}'") is not None
    assert find_obstacle(program, "f(g())", functions=("g",)) is not None


def test_a_failure_of_monty_is_one_only_for_assertions_of_the_tests() -> None:
    assert run_python("x = 1", tests="assert x == 2", backend="monty").status == "failed"
    assert can_assert("def f(x):\n    assert x")
    program = "def f(x):\n    assert x > 3\n    return x"
    assert run_python(program, tests="assert f(1) == 1", backend="monty").status == "refused"


@pytest.mark.parametrize(
    ("program", "parts"),
    [
        ("x = 1\nx + 1  # y", ("x = 1\n", "x + 1")),
        ("x = 1; x", ("x = 1; ", "x")),
        ("é = 1\r\n(é,\r\n 2)", ("é = 1\r\n", "(é,\r\n 2)")),
        ("x = 1", ("x = 1", "")),
        ("", ("", "")),
    ],
)
def test_the_last_expression_is_cut_off(program: str, parts: tuple[str, str]) -> None:
    assert split_last_value(program) == parts


_LISTS = st.lists(st.integers(-20, 20) | st.floats(-9, 9, width=16), max_size=6)
_EXPRESSIONS = [
    "sorted(v, reverse=True)",
    "[x for i, x in enumerate(v) if i % 2]",
    "sum(v), max(v + [0]), min(v + [0])",
    "[a // b for a, b in zip(v, v[1:]) if b]",
    "[a % b for a, b in zip(v, v[1:]) if b]",
    "[round(x) for x in v], [int(x) for x in v]",
    "str(v), len(str(v)), [str(x).upper() for x in v]",
    "v[::-1], v[1:-1], v[-2:], list(reversed(v))",
    "{'a': v, 'b': {1: v}}, {'a': 1}.get('a'), dict()",
    "sorted(set(v)), len(set(v))",
    "[x ** 2 for x in v], [2 ** x for x in v if x < 5]",
    "[divmod(x, 3) for x in v]",
    "' '.join([str(x) for x in v]).split()",
    "[bin(int(x)) for x in v], [hex(int(x)) for x in v]",
    "v == sorted(v), v < sorted(v), tuple(v) in [tuple(v)]",
    "any(x > 3 for x in v), all(x > 3 for x in v)",
    "f'{v}|{len(v)}'",
]


@pytest.mark.slow
@needs_bubblewrap
@given(values=_LISTS, expression=st.sampled_from(_EXPRESSIONS))
def test_both_give_the_same(values: list[float], expression: str) -> None:
    program = f"v = {values!r}\n{expression}"
    monty = run_python(program)
    cpython = run_python(program, backend="cpython")
    assert (monty.status, repr(monty.value)) == (cpython.status, repr(cpython.value))
    assert (monty.backend, MISSING) == ("monty", None)
