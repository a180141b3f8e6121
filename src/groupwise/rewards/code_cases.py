"""Tests as inputs with their outputs: for a program's stdin and stdout, or for calls of a function.

APPS has ``{"inputs": [...], "outputs": [...]}`` with an optional ``fn_name``, LiveCodeBench the
same or a list of ``{"input", "output", "testtype"}``; each also as the text of that JSON.

Source: testing_util.py of github.com/hendrycks/apps and of github.com/LiveCodeBench/LiveCodeBench.
As there: lines are compared without the space around them and all of the output without the empty
lines around it; lines of numbers are compared as numbers; a tuple counts as a list; of an expected
list of APPS the first item will do; a class ``Solution`` is used; names that everybody imports need
no import; an exit is an end. Otherwise than there: tuples within a result are lists too, and
nothing is patched: the program runs as a program and reads its real input.
"""

import ast
import builtins
import importlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import cast

from groupwise.core import parse_python
from groupwise.rewards.fields import read_list, read_mapping
from groupwise.rewards.python_tests import UnusableTestsError, list_names
from groupwise.sandbox import ProgramTests

_ASSUMED_MODULES = ("copy", "datetime", "json", "operator", "random", "re", "string", "sys")
_ASSUMED_FROM = ("typing", "bisect", "collections", "heapq", "itertools", "functools", "math")
_NO_FORM = "the tests are neither Python nor inputs with outputs"
_COMPARE = """
def as_lists_(value):
    if isinstance(value, (list, tuple)):
        return [as_lists_(item) for item in value]
    return value
"""


@dataclass(frozen=True, slots=True)
class InputCases:
    """What a program is given, and what it has to print.

    Attributes:
        cases: (input, expected output) pairs, at least one.
    """

    cases: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CallCases:
    """What a function is given, and what it has to return.

    Attributes:
        name: of the function, or of the method of ``Solution``.
        cases: (arguments, results any of which will do) pairs, at least one.
    """

    name: str
    cases: tuple[tuple[tuple[object, ...], tuple[object, ...]], ...]

    def write_tests(self, program: str) -> ProgramTests:
        """Return the tests of a program; whether it has a class ``Solution`` decides their form."""
        target = f"Solution().{self.name}" if "class Solution" in program else self.name
        lines = [
            f"assert as_lists_({target}({', '.join(map(repr, given))})) in {list(wanted)!r}"
            for given, wanted in self.cases
        ]
        return ProgramTests("\n".join([_COMPARE, *lines]), self.name)


def read_cases(given: object, entry_point: str | None) -> InputCases | CallCases:
    """Return the cases in a mapping, or in a list of mappings."""
    inputs, outputs, name = _read_table(given, entry_point)
    if len(inputs) != len(outputs) or not inputs:
        raise UnusableTestsError(f"the tests have {len(inputs)} inputs and {len(outputs)} outputs")
    if name is None:
        cases = tuple(zip(map(_join_lines, inputs), map(_join_lines, outputs), strict=True))
        if not any(output.strip() for _, output in cases):
            raise UnusableTestsError("the tests expect no output")
        return InputCases(cases)
    if not name.isidentifier():
        raise UnusableTestsError(f"{name!r} is no name of a function")
    calls = tuple(_read_call(*pair) for pair in zip(inputs, outputs, strict=True))
    if all(None in wanted for _, wanted in calls):
        raise UnusableTestsError("the tests expect no result")
    return CallCases(name, calls)


def _read_table(
    given: object, entry_point: str | None
) -> tuple[Sequence[object], Sequence[object], str | None]:
    """Return inputs, outputs, and the function's name if there is one."""
    table = read_mapping(given)
    if table is not None:
        inputs, outputs = read_list(table.get("inputs")), read_list(table.get("outputs"))
        name = table.get("fn_name")
    else:
        rows = [read_mapping(row) for row in read_list(given) or (None,)]
        if None in rows:
            raise UnusableTestsError(_NO_FORM)
        rows = [row for row in rows if row is not None]
        inputs = [row.get("input") for row in rows]
        outputs = [row.get("output") for row in rows]
        kinds = {row.get("testtype", "stdin") for row in rows}
        if kinds == {"functional"} and entry_point is None:
            raise UnusableTestsError("the tests call a function and there is no entry point")
        name = entry_point if kinds == {"functional"} else None
        if kinds not in ({"functional"}, {"stdin"}):
            inputs = None
    if inputs is None or outputs is None or not isinstance(name, str | None):
        raise UnusableTestsError(_NO_FORM)
    return inputs, outputs, name


def _join_lines(given: object) -> str:
    """Return a text as it is; APPS also has lists of lines."""
    lines = [given] if isinstance(given, str) else read_list(given)
    if lines is None or not all(isinstance(line, str) for line in lines):
        raise UnusableTestsError("an input or output is no text")
    return "\n".join(cast("Sequence[str]", lines))


def _read_call(given: object, wanted: object) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return arguments and accepted results: JSON lines (LiveCodeBench), or values (APPS)."""
    if isinstance(given, str):
        return tuple(map(read_json, given.split("\n"))), (read_json(wanted),)
    arguments, result = read_list(_copy_json(given)), _copy_json(wanted)
    if arguments is None:
        raise UnusableTestsError("the arguments of a call are no list")
    if len(arguments) == 1:
        arguments = [_restore_keys(arguments[0])]
    firsts = (read_list(result) or ())[:1]
    return tuple(arguments), tuple(map(_restore_keys, (result, *firsts)))


def _copy_json(value: object) -> object:
    try:
        return read_json(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise UnusableTestsError("an input or output of a call is no JSON") from None


def read_json(text: object) -> object:
    """Return a JSON value that Python source can have: without NaN and infinite numbers.

    Raises:
        UnusableTestsError: if it is none.
    """
    try:
        return json.loads(cast("str", text), parse_constant=_refuse, parse_float=_read_float)
    except (TypeError, ValueError, RecursionError):
        raise UnusableTestsError("an input or output of a call is no JSON") from None


def _read_float(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse(text)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _restore_keys(value: object) -> object:
    """Return a dict with whole numbers as keys again, where JSON made text of all of them."""
    table = read_mapping(value)
    if not table or not all(key.lstrip("-").isdecimal() for key in table):
        return value
    return {int(key): item for key, item in table.items()}


def compare_output(found: str, wanted: str) -> str:
    """Return the first difference between two outputs; empty if they count as the same."""
    lines, expected = ([x.strip() for x in text.strip().split("\n")] for text in (found, wanted))
    if len(lines) != len(expected):
        return f"{len(lines)} lines instead of {len(expected)}"
    for number, pair in enumerate(zip(lines, expected, strict=True), 1):
        if pair[0] != pair[1] and not _are_same_numbers(*pair):
            return f"line {number} differs"
    return ""


def _are_same_numbers(*lines: str) -> bool:
    try:
        found, wanted = ([Decimal(word) for word in line.split()] for line in lines)
        return found == wanted
    except InvalidOperation:  # also of comparing a signaling NaN
        return False


def add_imports(program: str) -> str:
    """Return a program with the imports that these data sets take for granted, where it needs them.

    Only names that it reads and never binds are imported.
    """
    try:
        tree = parse_python(program.encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return program  # it says so itself when it is run
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    missing = sorted((read - list_names(program)) & _list_assumed().keys())
    lines = [_list_assumed()[name] for name in missing]
    return program if "__future__" in program else "\n".join([*lines, program])


@cache
def _list_assumed() -> Mapping[str, str]:
    """Return the import of each name; what is a builtin stays one (``pow``)."""
    lines: dict[str, str] = {}
    for module in _ASSUMED_FROM:
        public = vars(importlib.import_module(module))
        names = public.get("__all__") or [name for name in public if name[0] != "_"]
        lines |= {name: f"from {module} import {name}" for name in names}
    modules = (*_ASSUMED_MODULES, *_ASSUMED_FROM)
    lines |= {name: f"import {name}" for name in modules}
    lines = {name: line for name, line in lines.items() if not hasattr(builtins, name)}
    # The sandbox has no site module, which makes these two.
    return lines | {"exit": "from sys import exit", "quit": "from sys import exit as quit"}
