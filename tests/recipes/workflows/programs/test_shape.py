"""The shape of a program is a program that does the same, whatever names and comments say."""

import random

import pytest
import workflow_grammar
from program_corpora import NATURAL

from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.programs import check_program, describe_shape

SIGNATURES = signatures(OPERATORS)
HEAD = "async def workflow(problem, entry_point):\n"


def draw_passed() -> list[str]:
    drawn = (workflow_grammar.draw_program(random.Random(seed)) for seed in range(150))
    return [one for text in [*drawn, *NATURAL] if (one := check_program(text, SIGNATURES).source)]


def test_a_shape_passes_the_checks_and_is_its_own_shape() -> None:
    programs = draw_passed()
    assert len(programs) > 50
    for program in programs:
        shape = describe_shape(program)
        assert check_program(shape, SIGNATURES).refusal is None, program
        assert describe_shape(shape) == shape


def test_names_and_comments_do_not_count() -> None:
    one = f"{HEAD}    # math\n    math = await answer_generate(problem)\n    return math.answer"
    other = f"{HEAD}    a = await answer_generate(problem)  # first\n    return a.answer"
    assert describe_shape(one) == describe_shape(other)
    assert "v1 = await answer_generate(problem)" in describe_shape(one)


def test_a_name_that_is_also_an_attribute_does_not_count() -> None:
    one = f"{HEAD}    code = await code_generate(problem, entry_point)\n    return code.code"
    other = f"{HEAD}    a = await code_generate(problem, entry_point)\n    return a.code"
    assert describe_shape(one) == describe_shape(other)


@pytest.mark.parametrize(
    "body",
    [
        "    a = await programmer(problem)\n    return a.output",
        "    a = await answer_generate(problem)\n    return a.thought",
        "    a = await answer_generate('problem')\n    return a.answer",
        "    a = await answer_generate(entry_point)\n    return a.answer",
        "    problem = 'x'\n    a = await answer_generate(problem)\n    return a.answer",
    ],
)
def test_what_a_program_does_counts(body: str) -> None:
    asked = f"{HEAD}    a = await answer_generate(problem)\n    return a.answer"
    assert describe_shape(HEAD + body) != describe_shape(asked)


def test_names_stay_where_another_binding_has_them() -> None:
    program = f"""{HEAD}    def v1(a):
        return a
    b = await answer_generate(problem)
    return v1(b.answer)"""
    shape = describe_shape(program)
    assert "def v1(a)" in shape
    assert "v2 = await" in shape
    assert "v1(v2.answer)" in shape


def test_a_name_that_is_also_bound_otherwise_stays() -> None:
    program = f"""{HEAD}    e = ''
    try:
        e = (await answer_generate(problem)).answer
    except OperatorError as e:
        return str(e)
    return e"""
    assert check_program(program, SIGNATURES).refusal is None
    assert describe_shape(program) == program
