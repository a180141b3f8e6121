import textwrap

import pytest

from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.programs import check_program

SIGNATURES = signatures(OPERATORS)


def body(*lines: str) -> str:
    """Return a workflow of these lines."""
    return "async def workflow(problem):\n" + textwrap.indent("\n".join(lines), "    ")


UNASSIGNED = {
    "read before": ("x", 2, "return x", "x = 1"),
    "one branch": ("x", 4, "if problem:\n    x = 1", "return x"),
    "one branch of three": (
        *("x", 8, "if problem:\n    x = 1"),
        *("elif len(problem):\n    pass", "else:\n    x = 2", "return x"),
    ),
    "no turn of a loop": ("x", 4, "for x in problem:\n    pass", "return x"),
    "a range of nothing": ("x", 4, "for x in range(3, 3):\n    pass", "return x"),
    "range is another's": (
        *("x", 5, "range = len", "for i in range(3):\n    x = 1", "return x"),
    ),
    "a loop left early": (
        *("x", 6, "for i in [1, 2]:\n    if problem:\n        break\n    x = 1", "return x"),
    ),
    "a turn cut short": (
        *("x", 6, "for i in [1]:\n    if problem:\n        continue\n    x = 1", "return x"),
    ),
    "else of a loop": (
        *("x", 6, "for i in problem:\n    break", "else:\n    x = 1", "return x"),
    ),
    "no turn of while": ("x", 4, "while problem:\n    x = 1", "return x"),
    "a break from while True": (
        *("x", 6, "while True:\n    if problem:\n        break\n    x = 1", "return x"),
    ),
    "an error in try": (
        *("x", 6, "try:\n    x = len(problem)", "except Exception:\n    pass", "return x"),
    ),
    "an error before it in try": (
        *("x", 6, "try:\n    len(problem)\n    x = 1"),
        *("except Exception:\n    return x", "return 1"),
    ),
    "an error in else of try": (
        *("x", 8, "try:\n    len(problem)", "except Exception:\n    pass"),
        *("else:\n    x = 1", "return x"),
    ),
    "finally": ("x", 5, "try:\n    x = len(problem)", "finally:\n    print(x)", "return 1"),
    "the error's name later": (
        *("e", 6, "try:\n    len(problem)", "except Exception as e:\n    pass", "return e"),
    ),
    "the error's name was used before": (
        *("e", 7, "e = 1", "try:\n    len(problem)"),
        *("except Exception as e:\n    pass", "return e"),
    ),
    "the error's name, after a jump": (
        *("e", 8, "e = 1", "for i in problem:\n    try:\n        len(problem)"),
        *("    except Exception as e:\n        break", "return e"),
    ),
    "a case that is missing": (
        *("x", 5, "match problem:\n    case 'a':\n        x = 1", "return x"),
    ),
    "a guard": (
        *("x", 5, "match problem:\n    case [x] if len(problem):\n        return 1", "return x"),
    ),
    "with": (
        *("x", 5, "from contextlib import suppress"),
        *("with suppress(Exception):\n    x = len(problem)", "return x"),
    ),
    "after del": ("x", 4, "x = 1", "del x", "return x"),
    "del in a branch": ("x", 5, "x = 1", "if problem:\n    del x", "return x"),
    "del in an earlier turn": (
        *("x", 4, "x = 1", "for i in problem:\n    print(x)\n    del x", "return 1"),
    ),
    "del twice": ("x", 4, "x = 1", "del x", "del x", "return 1"),
    "del of part": ("x", 2, "del x[0]", "x = [1]", "return 1"),
    "augmented": ("x", 2, "x += 1", "return x"),
    "augmented part": ("x", 2, "x[0] += 1", "x = []", "return x"),
    "stored part": ("x", 2, "x[0] = 1", "x = []", "return x"),
    "and": ("y", 3, "x = len(problem) and (y := 1)", "return y"),
    "or": ("y", 3, "if len(problem) or (y := 1):\n    return y", "return 1"),
    "the other value": ("y", 3, "x = 1 if problem else (y := 2)", "return y"),
    "later comparisons": ("y", 3, "x = 1 < len(problem) < (y := 2)", "return y"),
    "a walrus in a comprehension": ("y", 3, "x = [y := 1 for i in problem]", "return y"),
    "a comprehension's own name": ("i", 3, "x = [i for i in problem]", "i = i + 1", "return i"),
    "a comprehension's later loop": ("x", 2, "return [x for y in problem for x in x]"),
    "a comprehension before": ("x", 2, "y = [x for i in problem]", "x = 1", "return y"),
    "a generator before": ("x", 2, "y = (x for i in problem)", "x = 1", "return y"),
    "a generator after": ("x", 3, "x = 1", "y = (x for i in problem)", "del x", "return list(y)"),
    "a lambda before": ("x", 2, "y = lambda: x", "x = 1", "return y()"),
    "a function before": ("x", 3, "def f():\n    return x", "x = 1", "return f()"),
    "a function's own": ("x", 3, "def f():\n    return x\n    x = 1", "return f()"),
    "a function's own, too": ("x", 4, "x = 1", "def f():\n    x += 1\n    return x", "return f()"),
    "a function that is gone": ("f", 3, "def f():\n    return f()", "del f", "return 1"),
    "called before": ("f", 2, "x = f()", "def f():\n    return 1", "return x"),
    "an import in a branch": ("re", 4, "if problem:\n    import re", "return re.escape(problem)"),
    "an import of its own": ("re", 2, "x = re.escape(problem)", "import re", "return x"),
    "another function's": ("x", 4, "def f():\n    x = 1", "return x"),
    "another comprehension's": ("x", 3, "y = [x for x in problem]", "return x"),
    "a parameter's": ("x", 3, "y = lambda x: x", "return x"),
    "an endless loop that is interrupted": (
        *("x", 6, "try:\n    while True:\n        pass", "finally:\n    return x", "x = 1"),
    ),
    "only declared": ("x", 3, "x: int", "return x"),
    "an assertion's message": ("x", 2, "assert problem, x", "x = 1", "return x"),
    "an f-string": ("x", 2, "return f'{x}'", "x = 1"),
    "the width of an f-string": ("x", 2, "return f'{1:{x}}'", "x = 1"),
    "a class in a pattern": (
        *("x", 3, "match problem:\n    case x():\n        return 1"),
        *("    case _:\n        x = 1", "return x"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNASSIGNED)
def test_a_variable_that_may_have_no_value_is_refused(case):
    name, line, *lines = UNASSIGNED[case]
    refusal = check_program(body(*map(str, lines)), SIGNATURES).refusal
    assert refusal is not None
    assert refusal.reason == "unassigned"
    assert repr(name) in refusal.message
    assert refusal.line == line


ASSIGNED = {
    "both branches": ("if problem:\n    x = 1", "else:\n    x = 2", "return x"),
    "the other branch leaves": ("if problem:\n    x = 1", "else:\n    return 2", "return x"),
    "the other branch raises": ("if problem:\n    x = 1", "else:\n    raise KeyError", "return x"),
    "an always true condition": ("if True:\n    x = 1", "return x"),
    "a range of three": ("for i in range(3):\n    x = i", "return x, i"),
    "a list": ("for i in [1, 2]:\n    x = i\n    if problem:\n        break", "return x, i"),
    "else of a loop": ("for i in problem:\n    x = 1\n    break", "else:\n    x = 2", "return x"),
    "while True": ("while True:\n    x = 1\n    if problem:\n        break", "return x"),
    "while True that only returns": ("while True:\n    if problem:\n        return 1",),
    "while with a walrus": ("while (x := len(problem)) > 3:\n    pass", "return x"),
    "try with a value in each": (
        *("try:\n    x = len(problem)", "except Exception:\n    x = 0", "return x"),
    ),
    "try that cannot fail yet": (
        *("try:\n    x = 0\n    x = len(problem)", "except Exception:\n    pass", "return x"),
    ),
    "handlers that leave": (
        *("try:\n    x = len(problem)", "except ValueError:\n    return 0"),
        *("except Exception as e:\n    raise", "return x"),
    ),
    "else of try": (
        *("try:\n    len(problem)", "except Exception:\n    x = 1"),
        *("else:\n    x = 2", "return x"),
    ),
    "finally keeps": ("try:\n    x = len(problem)", "finally:\n    print(1)", "return x"),
    "finally gives": ("try:\n    print(1)", "finally:\n    x = 1", "return x"),
    "finally returns": ("try:\n    print(1)", "finally:\n    return 1"),
    "the error's name": (
        *("try:\n    return len(problem)", "except Exception as e:\n    return str(e)"),
    ),
    "match of everything": (
        *("match problem:\n    case [x, *_] | {'a': x}:\n        pass",),
        *("    case x:\n        pass", "return x"),
    ),
    "del and again": ("for i in problem:\n    x = 1\n    print(x)\n    del x", "return 1"),
    "del of part": ("x = [1]", "del x[0]", "return x"),
    "and": ("if (x := len(problem)) and (y := x + 1):\n    return y", "return x"),
    "not": ("if not (problem and (y := 1)):\n    return 0", "return y"),
    "a filter": ("return [y for x in problem if (y := len(x)) > 1]",),
    "a guard": ("match problem:\n    case x if len(problem):\n        return 1", "return x"),
    "a generator that is used up": ("x = 1", "y = list(x for i in problem)", "del x", "return y"),
    "a function of itself": ("def f(n):\n    return n and f(n - 1)", "return f(3)"),
    "a function of what is outside": (
        *("x = 1", "def f(a, *b, c=1, **d):\n    return a, b, c, d, x", "return f(3)"),
    ),
    "a lambda": ("x = {1: 2}", "return sorted(x, key=lambda i, d=0: x[i] + d)"),
    "unreached": ("return 1", "return x", "x = 1"),
    "unpacking": ("a, (b, *c), [d] = problem", "return a, b, c, d"),
    "two targets": ("a = b = 1", "return a + b"),
    "with": (
        *("from decimal import localcontext", "with localcontext() as c:\n    pass", "return c"),
    ),
    "a name of the module": ("return helper(1) + LIMIT",),
}  # fmt: skip
MODULE = (
    "LIMIT = 3\ndef helper(n: int) -> 'Number':\n    return later(n)\ndef later(n):\n    return n\n"
)


@pytest.mark.parametrize("case", ASSIGNED)
def test_a_variable_that_always_has_a_value_is_not_refused(case):
    assert check_program(MODULE + body(*ASSIGNED[case]), SIGNATURES).refusal is None


def test_an_assignment_in_a_comprehension_is_of_the_function_around_it():
    program = MODULE + body("x = [(LIMIT := 1) for i in problem]", "return LIMIT")
    refusal = check_program(program, SIGNATURES).refusal
    assert refusal is not None
    assert (refusal.reason, refusal.line) == ("unassigned", 8)
