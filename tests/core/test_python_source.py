"""Python source is parsed by many threads at once without a false error."""

import ast
import gc
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from groupwise.core import parse_python

NESTED = "def f(a):\n" + "".join(
    f"    if a > {n}:\n        return [a + {n} for b in c if (b, [{n}])]\n" for n in range(10)
)


@pytest.fixture
def other_threads_run_while_garbage_is_collected() -> Iterator[None]:
    """Collect often, and let other threads run in the middle of it."""

    def give_way(*_: Any) -> None:
        time.sleep(0)

    interval_s, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(give_way)
    yield
    gc.callbacks.remove(give_way)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("other_threads_run_while_garbage_is_collected")
def test_threads_that_parse_at_once_all_get_their_tree() -> None:
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _: parse_python(NESTED), range(1600)))
    assert {len(tree.body[0].body) for tree in trees} == {10}  # pyright: ignore


def test_it_is_what_the_standard_library_parses() -> None:
    assert ast.dump(parse_python(NESTED)) == ast.dump(ast.parse(NESTED))
    assert ast.dump(parse_python("a + 1", mode="eval")) == ast.dump(ast.parse("a + 1", mode="eval"))
    with pytest.raises(SyntaxError) as caught:
        parse_python(b"def (", filename="mine.py")
    assert caught.value.filename == "mine.py"


def test_a_parse_that_met_another_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [SystemError("AST constructor recursion depth mismatch")] * 3
    parse = ast.parse

    def fail_first(*given: Any) -> ast.AST:
        if faults:
            raise faults.pop()
        return parse(*given)

    monkeypatch.setattr(ast, "parse", fail_first)
    assert len(parse_python("a = 1").body) == 1
    faults += [SystemError("always")] * 20
    with pytest.raises(SystemError, match="always"):
        parse_python("a = 1")
