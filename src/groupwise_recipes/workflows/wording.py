"""Code problems in the other published form: a signature and a docstring instead of sentences."""

import ast

from groupwise.core import parse_python
from groupwise_recipes.workflows.problem_sets import Problem


def word_as_stub(problem: Problem) -> Problem:
    """Return a code problem worded as HumanEval words its own (Chen et al. 2021, 2107.03374).

    The signature is that of the reference, the docstring the first paragraph of the problem and
    its public tests as examples. A problem without such a reference stays as it is.
    """
    function = _find_function(problem)
    if function is None:
        return problem
    task = problem.problem.partition("\n\n")[0]
    lines = [task, *(line for test in problem.public_tests for line in _write_example(test))]
    docstring = "\n".join(f"    {line}".rstrip() for line in lines).lstrip()
    head = f"def {function.name}({ast.unparse(function.args)}):"
    text = f'Complete this Python function.\n\n{head}\n    """{docstring}\n    """'
    return problem.model_copy(update={"problem": text})


def _find_function(problem: Problem) -> ast.FunctionDef | None:
    if problem.entry_point is None:
        return None
    try:
        tree = parse_python(problem.ground_truth)
    except SyntaxError:
        return None
    found = (one for one in tree.body if isinstance(one, ast.FunctionDef))
    return next((one for one in found if one.name == problem.entry_point), None)


def _write_example(test: str) -> list[str]:
    """Return ``assert call == value`` as in a session; nothing for another test."""
    try:
        [statement] = parse_python(test).body
    except (SyntaxError, ValueError):
        return []
    compared = statement.test if isinstance(statement, ast.Assert) else None
    if not isinstance(compared, ast.Compare) or not isinstance(compared.ops[0], ast.Eq):
        return []
    return [f">>> {ast.unparse(compared.left)}", ast.unparse(compared.comparators[0])]
