"""Right programs pass, or are refused with a reason; none is said to have failed."""

import pytest
from program_corpora import BENIGN, Program
from sandbox_host import needs_bubblewrap

from groupwise.rewards.code import prepare_tests
from groupwise.sandbox import Limits, run_python

pytestmark = needs_bubblewrap
LIMITS = Limits(timeout_s=30)


def test_there_are_enough_of_them() -> None:
    assert len({program.name for program in BENIGN}) == len(BENIGN) == 235


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=program.name, marks=[pytest.mark.slow] if number % 3 else [])
        for number, program in enumerate(BENIGN)
    ],
)
def test_a_right_program_has_not_failed(program: Program) -> None:
    tests = prepare_tests(program.tests, None)
    result = run_python(program.program, tests=tests, limits=LIMITS)
    assert (result.status, bool(result.message)) == (program.status, program.status == "refused")


@pytest.mark.slow
@pytest.mark.parametrize("program", BENIGN, ids=lambda program: program.name)
def test_it_is_right_in_one_process(program: Program) -> None:
    tests = prepare_tests(program.tests, None)
    alone = run_python(f"{program.program}\n{tests.source}", limits=LIMITS)
    assert alone.status == "passed", alone
