import textwrap

import pytest
from tables import read_tables

from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.programs import check_program

TABLES = read_tables(__file__)

SIGNATURES = signatures(OPERATORS)


def body(*lines: str) -> str:
    """Return a workflow of these lines."""
    return "async def workflow(problem):\n" + textwrap.indent("\n".join(lines), "    ")


UNASSIGNED = TABLES["unassigned"]  # fmt: skip


@pytest.mark.parametrize("case", UNASSIGNED)
def test_a_variable_that_may_have_no_value_is_refused(case):
    name, line, *lines = UNASSIGNED[case]
    refusal = check_program(body(*map(str, lines)), SIGNATURES).refusal
    assert refusal is not None
    assert refusal.reason == "unassigned"
    assert repr(name) in refusal.message
    assert refusal.line == line


ASSIGNED = TABLES["assigned"]  # fmt: skip
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
