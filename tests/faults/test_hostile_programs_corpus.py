"""Nothing escapes, nothing fakes a pass, nothing hangs, and nothing is left of it."""

import pytest
from program_corpora import HOSTILE, Program
from sandbox_host import MISSING, SHORT, HostState, read_host_state, wait_for_children

from groupwise.sandbox import run_python


@pytest.fixture(scope="module")
def host_state() -> HostState:
    """The host once bubblewrap has been used."""
    if MISSING is not None:
        pytest.skip(MISSING)
    assert run_python("6 * 7").value == 42
    return read_host_state()


def test_there_are_enough_of_them() -> None:
    assert len({program.name for program in HOSTILE}) == len(HOSTILE) == 211


@pytest.mark.parametrize("program", HOSTILE, ids=lambda program: program.name)
def test_a_hostile_program_ends_as_it_should(program: Program, host_state: HostState) -> None:
    result = run_python(program.program, tests=program.tests, limits=SHORT)
    assert result.status == program.status, result
    assert program.error in ("", result.error), result
    left = read_host_state()
    assert {f for f in left.files - host_state.files if "memfd" not in f} == set()
    assert wait_for_children(host_state.children) == frozenset()
    assert left.resident_mib < host_state.resident_mib + 64
    assert run_python("6 * 7").value == 42
