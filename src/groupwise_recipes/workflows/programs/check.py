"""Check a program before it runs."""

import ast
import inspect
from collections.abc import Mapping

from groupwise_recipes.workflows.programs.calls import check_calls
from groupwise_recipes.workflows.programs.form import check_language, check_top_level
from groupwise_recipes.workflows.programs.language import BUILTINS
from groupwise_recipes.workflows.programs.names import check_names
from groupwise_recipes.workflows.programs.reasons import Checked, RefusedError, Repair
from groupwise_recipes.workflows.programs.statements import find_unassigned
from groupwise_recipes.workflows.programs.text import find_source, parse


def check_program(text: str, operators: Mapping[str, inspect.Signature]) -> Checked:
    """Find the program in a policy's reply and say whether it may run.

    A program that passes calls operators only as they are declared, awaits each call once, returns
    a value on every path, and never raises ``NameError`` or ``UnboundLocalError``. Nothing of it is
    run here, and whatever the text is, it is answered.

    Returns:
        What runs, or the first thing that is wrong.
    """
    repairs: tuple[Repair, ...] = ()
    try:
        source, repairs = find_source(text)
        _check(parse(source), operators)
    except RefusedError as error:
        return Checked("", error.refusal, repairs)
    except RecursionError:
        return Checked("", RefusedError("too_nested").refusal, repairs)
    return Checked(source, None, repairs)


def _check(tree: ast.Module, operators: Mapping[str, inspect.Signature]) -> None:
    check_top_level(tree)
    check_language(tree)
    check_names(tree, operators.keys())
    check_calls(tree, operators)
    faults, always_returns = find_unassigned(tree, BUILTINS | operators.keys())
    if faults:
        (_, name), line = min(faults.items(), key=lambda item: (item[1], item[0][1]))
        raise RefusedError("unassigned", line, f"{name!r} is not assigned on every path to here")
    if not always_returns:
        raise RefusedError("no_answer", tree.body[-1].lineno, "the end is reached without `return`")
