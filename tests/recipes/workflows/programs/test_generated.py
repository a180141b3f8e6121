"""Programs that pass the check are run: no name is ever without a value."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
import workflow_grammar
import workflow_grammar_blind
from program_corpora import NATURAL
from workflow_runs import Runs

from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.programs import check_program

SIGNATURES = signatures(OPERATORS)
GENERATORS = (workflow_grammar.draw_program, workflow_grammar_blind.draw_program)
NUM_RUNS = 3


def run_passed(draw: Callable[[random.Random], str], seeds: range) -> tuple[Counter[str], Runs]:
    """Run those of the drawn programs that pass; count why the others do not."""
    reasons, runs = Counter[str](), Runs(list(SIGNATURES))
    for seed in seeds:
        checked = check_program(draw(random.Random(seed)), SIGNATURES)
        reasons[checked.refusal.reason if checked.refusal else ""] += 1
        if checked.refusal is None:
            rng = random.Random(seed)
            found = runs.find_unnamed(checked.source, rng, num_runs=NUM_RUNS)
            assert not found, f"seed {seed}: {found[0]}\n{checked.source}"
    assert runs.ends["nothing"] == 0
    return reasons, runs


# The second draws long programs, slowly.
@pytest.mark.parametrize(("draw", "num_programs"), [*zip(GENERATORS, (150, 6), strict=True)])
def test_a_program_that_passes_never_reads_a_name_without_a_value(draw, num_programs: int):
    reasons, runs = run_passed(draw, range(num_programs))
    # Both the check and the runs have something to find.
    assert reasons[""] > num_programs / 8
    assert reasons["unassigned"] > num_programs / 8
    assert runs.ends["value"] > num_programs / 4
    assert runs.ends["ValueError"] + runs.ends["OperatorError"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("draw", GENERATORS)
def test_none_of_thousands_that_pass_reads_a_name_without_a_value(draw):
    reasons, _ = run_passed(draw, range(5000))
    assert reasons[""] > 1000


@pytest.mark.parametrize("num_programs", [4, pytest.param(1000, marks=pytest.mark.slow)])
def test_programs_that_assign_on_every_path_are_not_refused(num_programs: int):
    rngs = map(random.Random, range(num_programs))
    drawn = map(workflow_grammar_blind.draw_sound_program, rngs)
    refused = [c.refusal for program in drawn if (c := check_program(program, SIGNATURES)).refusal]
    assert len(refused) <= num_programs / 100, refused


@pytest.mark.parametrize("place", range(len(NATURAL)))
def test_what_a_language_model_writes_is_not_refused(place: int):
    checked = check_program(NATURAL[place], SIGNATURES)
    assert checked.refusal is None
    runs = Runs(list(SIGNATURES))
    rng = random.Random(place)
    assert runs.find_unnamed(checked.source, rng, num_runs=10) == []
    assert runs.ends["value"] > 0


def test_the_runs_find_a_name_without_a_value():
    program = "async def workflow(problem):\n    if problem:\n        x = 1\n    return x\n"
    caught = (
        "async def workflow(problem):\n    try:\n        return x\n"
        "    except Exception:\n        return 1\n"
    )
    for source in (program, caught):
        assert Runs([]).find_unnamed(source, random.Random(0), num_runs=20)


def test_there_are_enough_natural_workflows():
    assert len(set(NATURAL)) == 33
