"""Rows of HumanEval and MBPP: what a solver may see and run, and what decides, are kept apart."""

import ast
import doctest
import warnings
from collections.abc import Sequence
from typing import Any

from groupwise.core import parse_python
from groupwise.data.problems.rows import SetRow
from groupwise.data.tables.values import UnusableRowError

_STATEMENTS = (ast.Assert, ast.For, ast.While)
_Functions = ast.FunctionDef | ast.AsyncFunctionDef


def read_human_eval(row: SetRow) -> dict[str, Any]:
    """Return the fields of a problem: its docstring's examples are public, other tests hidden."""
    prompt, name = row.require_text("prompt"), row.require_text("entry_point")
    solution = f"{row.values['prompt']}{row.values.get('canonical_solution') or ''}"
    setup, tests = _take_apart(_parse(row.require_text("test"), "test"), name)
    shown = [test for test in tests if _is_shown(test, prompt, name)]
    settled = {_find_asked(test) for test in shown}
    examples = list_examples(_find_docstring(solution, name), name)
    # One published example is wrong: where tests ask the same, they say what is right.
    public = [test for test in examples if _find_asked(test) not in settled]
    return _fill_code(
        problem=f"Complete this Python function.\n\n{prompt}",
        ground_truth=solution,
        entry_point=name,
        setup="\n".join([*_list_others(solution, name), *setup]),
        tests=([*public, *shown], tests),
    )


def read_mbpp(row: SetRow) -> dict[str, Any]:
    """Return the fields of a problem: its first assertion is public, all others are hidden."""
    text = row.require_text("text" if "text" in row.values else "prompt")
    code = row.require_text("code").replace("\r\n", "\n")
    tests = [test for name in ("test_list", "challenge_test_list") for test in row.list_texts(name)]
    if not tests:
        raise UnusableRowError("no tests", row.where)
    setup = row.list_texts("test_imports") or [str(row.values.get("test_setup_code") or "")]
    name = _find_called(_parse(tests[0], "test"), _parse(code, "code"))
    return _fill_code(
        problem=f"{text}\n\nThe function is called `{name}`; this holds:\n\n{tests[0].strip()}",
        ground_truth=code,
        entry_point=name,
        setup="\n".join(setup).replace("\r\n", "\n"),
        tests=(tests[:1], tests),
    )


def list_examples(docstring: str, name: str) -> list[str]:
    """Return the ``>>>`` examples of a docstring as assertions, in order.

    Only an example that calls ``name``, is one expression and shows a literal is one.
    """
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:  # its lines do not stand one below the other
        return []
    found = [_assert_example(e.source, e.want, name) for e in examples if e.exc_msg is None]
    return [test for test in found if test is not None]


def _assert_example(source: str, want: str, name: str) -> str | None:
    try:
        # Some examples end in prose behind a blank line.
        value = ast.literal_eval(want.split("\n\n")[0].strip())
        call = parse_python(source.strip(), mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    if name not in _list_names(call):
        return None
    return f"assert {ast.unparse(call)} == {value!r}"


def _fill_code(
    *,
    problem: str,
    ground_truth: str,
    entry_point: str,
    setup: str,
    tests: tuple[Sequence[str], Sequence[str]],
) -> dict[str, Any]:
    """Return the fields with the tests that decide: those that are not public or shown."""
    public = {_write_plainly(test): test.strip() for test in tests[0]}
    every = {_write_plainly(test): test.strip() for test in tests[1]}
    hidden = tuple(test for plain, test in every.items() if plain not in public)
    if not hidden:
        raise UnusableRowError("no hidden tests are left", entry_point)
    if ground_truth.strip() in problem:
        raise UnusableRowError("the problem shows its solution", entry_point)
    return {
        "problem": problem,
        "ground_truth": ground_truth,
        "entry_point": entry_point,
        "setup": setup.strip(),
        "public_tests": tuple(public.values()),
        "hidden_tests": hidden,
    }


def _parse(source: str, column: str) -> ast.Module:
    try:
        with warnings.catch_warnings():  # of escapes that are none
            warnings.simplefilter("ignore")
            return parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableRowError("code cannot be parsed", f"{column}: {error}") from None


def _take_apart(tests: ast.Module, name: str) -> tuple[list[str], list[str]]:
    """Return what the tests need, and each test, of a module with ``check(candidate)``."""
    check = next((n for n in tests.body if isinstance(n, _Functions) and n.name == "check"), None)
    if check is None:
        raise UnusableRowError("no tests", "no check(candidate)")
    candidate = check.args.args[0].arg
    for node in ast.walk(check):
        if isinstance(node, ast.Name) and node.id == candidate:
            node.id = name
    found = [node for node in check.body if isinstance(node, _STATEMENTS)]
    # Some tests assert that True is true.
    asked = [ast.unparse(node) for node in found if name in _list_names(node)]
    others = [node for node in check.body if not isinstance(node, _STATEMENTS)]
    return [ast.unparse(node) for node in others], asked


def _list_others(solution: str, name: str) -> list[str]:
    """Return the imports and functions that a prompt defines beside the one it asks for."""
    body = _parse(solution, "prompt").body
    return [
        ast.unparse(node)
        for node in body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, _Functions) and node.name != name)
    ]


def _find_docstring(source: str, name: str) -> str:
    defined = [n for n in _parse(source, "prompt").body if isinstance(n, _Functions)]
    found = next((node for node in defined if node.name == name), None)
    if found is None:
        raise UnusableRowError("the entry point is not defined", name)
    return ast.get_docstring(found) or ""


def _find_called(test: ast.Module, code: ast.Module) -> str:
    """Return the function or class of the code that the test calls."""
    defined = {n.name for n in code.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    called = [name for name in _list_names(test) if name in defined]
    if not called:
        raise UnusableRowError("the first test calls no function of the solution", "")
    return called[0]


def _list_names(tree: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _is_shown(test: str, prompt: str, name: str) -> bool:
    """Tell whether a call of the test stands in the prompt, with or without ``>>>``."""
    shown = "".join(prompt.split()).replace('"', "'")
    calls = [n for n in ast.walk(parse_python(test)) if isinstance(n, ast.Call)]
    texts = ["".join(ast.unparse(n).split()) for n in calls if name in _list_names(n.func)]
    return any(text.replace('"', "'") in shown for text in texts)


def _find_asked(test: str) -> str:
    """Return what an assertion is about: of a comparison, its left side."""
    node = parse_python(test).body[0]
    asked = node.test if isinstance(node, ast.Assert) else node
    return ast.unparse(asked.left if isinstance(asked, ast.Compare) else asked)


def _write_plainly(test: str) -> str:
    """Return a test as Python writes it, without its message."""
    tree = _parse(test.strip(), "test")
    for node in tree.body:
        if isinstance(node, ast.Assert):
            node.msg = None
    return ast.unparse(tree)
