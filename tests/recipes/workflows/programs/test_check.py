"""Programs: their checks, generation and shape."""

import inspect
import random
import sys
import textwrap
from collections import Counter

import pytest
import workflow_grammar
import workflow_grammar_blind
from program_corpora import NATURAL
from tables import read_tables
from workflow_runs import Runs

from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.programs import (
    REASONS,
    REPAIRS,
    Repair,
    check_program,
    describe_rules,
    describe_shape,
)
from groupwise_recipes.workflows.programs.language import (
    BUILTINS,
    FUNCTIONS,
    MODULES,
    list_module_names,
)

TABLES = read_tables(__file__)
SIGNATURES = signatures(OPERATORS)
ANSWER = "    return (await answer_generate(problem)).answer\n"
HEAD = "async def workflow(problem):\n"


def refuse(program):
    checked = check_program(textwrap.dedent(program).strip("\n"), SIGNATURES)
    assert checked.refusal is not None
    assert checked.source == ""
    return checked.refusal


def accept(program):
    source = textwrap.dedent(program).strip("\n")
    checked = check_program(source, SIGNATURES)
    assert checked.refusal is None
    assert checked.source == source


def body(*lines):
    """Return a workflow of these lines."""
    return HEAD + "".join(f"    {line}\n" for line in "\n".join(lines).split("\n"))


def fill(program):
    """Put the usual first line and answer where a case of the table names them."""
    return program.replace("{HEAD}", HEAD).replace("{ANSWER}", ANSWER)


NESTED = HEAD + "".join(f"{' ' * n}if problem:\n" for n in range(4, 20)) + f"{' ' * 20}return 1"
REFUSED = [
    *([reason, line, fill(program)] for reason, line, program in TABLES["refused"]),
    ["characters", 2, "x = 1\ny = '\0'\n"],
    ["characters", 1, "x = '\ud800'"],
    ["too_long", 0, "#" * 16_385],
    ["too_nested", 2, body("return " + "+".join("a" * 200))],
    ["too_nested", 0, body("return " + "-" * 5000 + "1")],
    ["too_nested", 17, NESTED],
    ["syntax", 2, body(f"return {'(' * 4000}")],
]


@pytest.mark.parametrize(("reason", "line", "program"), REFUSED)
def test_it_is_refused_with_its_reason_and_line(reason, line, program):
    refusal = refuse(program)
    assert (refusal.reason, refusal.line) == (reason, line)
    assert refusal.message


def test_every_reason_is_tested():
    assert {reason for reason, _, _ in REFUSED} | {"unassigned"} == set(REASONS)


FORMS = ["problem", "problem: str, entry_point", "problem, entry_point, tests"]


@pytest.mark.parametrize("parameters", FORMS)
def test_the_forms_of_a_workflow(parameters):
    accept(f"async def workflow({parameters}) -> str:\n{ANSWER}")


def test_operators_that_are_gathered_count_as_awaited():
    accept(f"""
        import asyncio
        {HEAD.strip()}
            a, b = await asyncio.gather(answer_generate(problem), custom(problem, "x"))
            c = await asyncio.gather(*[answer_generate(problem) for _ in range(3)])
            d = await asyncio.gather(*(custom(x.answer, "") for x in c), return_exceptions=True)
            return (await sc_ensemble([a.answer, b.response, c[0].answer], problem)).response
    """)


def test_a_programs_own_async_functions_are_awaited_like_operators():
    accept("""
        async def ask(problem, /, times=1, *rest, word="", **more):
            return (await custom(problem, word)).response

        async def workflow(problem):
            async def again():
                return await ask(problem, 2, 3, word="x", other=1)
            return await again()
    """)


def test_a_fence_and_the_text_around_it_are_taken_off_and_recorded():
    program = f"{HEAD}{ANSWER}"
    fence = Repair("fence", 1)
    assert check_program(f"```python\n{program}```", SIGNATURES).repairs == (fence,)
    checked = check_program(f"Sure:\n\n~~~\n{program}~~~\nDone.", SIGNATURES)
    assert checked.source == program
    assert checked.repairs == (Repair("fence", 3), Repair("text_around", 1))
    after = check_program(f"```\n{program}```\nDone.", SIGNATURES)
    assert after.repairs == (fence, Repair("text_around", 5))
    assert {repair.reason for repair in (*checked.repairs,)} < set(REPAIRS)


def test_a_fence_inside_a_program_is_part_of_it():
    accept(f'{HEAD}    text = """\n```python\n"""\n    return problem.replace(text, "")\n')


def test_common_indentation_is_taken_off_where_no_text_is_changed():
    program = f"{HEAD}{ANSWER}"
    checked = check_program(textwrap.indent(program, "  "), SIGNATURES)
    assert (checked.source, checked.repairs) == (program, (Repair("indented", 1),))
    text = textwrap.indent(f'{HEAD}    return """a\n    b"""\n', "  ")
    assert check_program(text, SIGNATURES).refusal is not None


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends_are_read_as_python_reads_them(end):
    program = f'{HEAD}    return """a\nb"""\n'
    assert check_program(program.replace("\n", end), SIGNATURES).source == program


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_text_is_there_is_an_answer(seed):
    rng = random.Random(seed)
    for _ in range(30):
        text = HEAD + "".join(rng.choices(TABLES["parts"], k=rng.choice([3, 30, 300])))
        assert check_program(text, SIGNATURES).refusal is not None


@pytest.mark.parametrize(
    "part",
    [
        *("(" * 9000, "[" * 9000, "{1:" * 3000, "lambda:" * 1300 + "1", "f(" * 3000),
        *("x" + ".x" * 4000, "x" + "[0]" * 3000, "not " * 2300 + "x", "1 if x else " * 700 + "1"),
        *("x" + "<x" * 4000, "await " * 1500 + "x", "1" * 9900, "f'{" * 3000, "*" * 9900),
        *("x" * 9900, "[x for x in " * 700),
    ],
)  # fmt: skip
def test_nesting_ends_in_a_refusal(part):
    assert refuse(f"{HEAD}    return {part}").reason in ("too_nested", "syntax", "unknown_name")


def test_finally_in_finally_is_refused_before_python_writes_it_out_many_times():
    program, indent = HEAD, "    "
    for _ in range(4):
        program += f"{indent}try:\n{indent}    pass\n{indent}finally:\n"
        indent += "    "
    assert refuse(f"{program}{indent}return 1\n").reason == "too_nested"


def test_a_check_that_is_called_from_far_down_has_an_answer():
    def go_down(depth):
        if depth:
            return go_down(depth - 1)
        return check_program(body(f"return {'(1 + ' * 40}1{')' * 40}"), SIGNATURES).refusal

    free = sys.getrecursionlimit() - len(inspect.stack(0))
    refusal = go_down(free - 60)
    assert refusal is not None
    assert refusal.reason == "too_nested"


def test_operators_without_annotations_are_checked_by_their_number_only():
    async def ask(x, y=None): ...

    operators = {"ask": inspect.signature(ask)}
    program = f"{HEAD}    return await ask([1], %s)\n"
    assert check_program(program % "y=2", operators).refusal is None
    refusal = check_program(program % "z=2", operators).refusal
    assert refusal is not None
    assert refusal.reason == "arguments"


def test_what_is_allowed_exists():
    namespace = {}
    for name in BUILTINS - {"OperatorError"}:
        exec(name, namespace)
    for module in MODULES:
        allowed = ", ".join(sorted(list_module_names(module)))
        exec(f"from {module} import {allowed}", namespace)


def test_the_rules_say_what_is_allowed():
    for language in ("en", "zh"):
        rules = describe_rules(language=language)
        assert all(name in rules for name in (*FUNCTIONS, *MODULES))
        without = describe_rules(assign_first=False, language=language)
        assert rules.startswith(without)
        assert len(rules.splitlines()) == len(without.splitlines()) + 1
        for form in ("workflow(problem)", "workflow(problem, entry_point, tests)"):
            assert form in rules
    assert "Assign every variable first" in describe_rules()


GENERATORS = (workflow_grammar.draw_program, workflow_grammar_blind.draw_program)
NUM_RUNS = 3


def run_passed(draw, seeds):
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
def test_a_program_that_passes_never_reads_a_name_without_a_value(draw, num_programs):
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
def test_programs_that_assign_on_every_path_are_not_refused(num_programs):
    rngs = map(random.Random, range(num_programs))
    drawn = map(workflow_grammar_blind.draw_sound_program, rngs)
    refused = [c.refusal for program in drawn if (c := check_program(program, SIGNATURES)).refusal]
    assert len(refused) <= num_programs / 100, refused


@pytest.mark.parametrize("place", range(len(NATURAL)))
def test_what_a_language_model_writes_is_not_refused(place):
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


WITH_ENTRY = "async def workflow(problem, entry_point):\n"


def draw_passed():
    drawn = (workflow_grammar.draw_program(random.Random(seed)) for seed in range(150))
    return [one for text in [*drawn, *NATURAL] if (one := check_program(text, SIGNATURES).source)]


def test_a_shape_passes_the_checks_and_is_its_own_shape():
    programs = draw_passed()
    assert len(programs) > 50
    for program in programs:
        shape = describe_shape(program)
        assert check_program(shape, SIGNATURES).refusal is None, program
        assert describe_shape(shape) == shape


def test_names_and_comments_do_not_count():
    asked = "await answer_generate(problem)"
    coded = "await code_generate(problem, entry_point)"
    for one, other in (
        (
            f"# math\n    math = {asked}\n    return math.answer",
            f"a = {asked}  # first\n    return a.answer",
        ),
        (f"code = {coded}\n    return code.code", f"a = {coded}\n    return a.code"),
    ):
        shapes = [describe_shape(f"{WITH_ENTRY}    {body}") for body in (one, other)]
        assert shapes[0] == shapes[1]
        assert "v1 = await" in shapes[0]


@pytest.mark.parametrize("body", TABLES["what_a_program_does_counts"])
def test_what_a_program_does_counts(body):
    asked = f"{WITH_ENTRY}    a = await answer_generate(problem)\n    return a.answer"
    assert describe_shape(WITH_ENTRY + body) != describe_shape(asked)


def test_names_stay_where_another_binding_has_them_or_they_are_bound_otherwise_too():
    program = f"""{WITH_ENTRY}    def v1(a):
        return a
    b = await answer_generate(problem)
    return v1(b.answer)"""
    shape = describe_shape(program)
    for part in ("def v1(a)", "v2 = await", "v1(v2.answer)"):
        assert part in shape
    program = f"""{WITH_ENTRY}    e = ''
    try:
        e = (await answer_generate(problem)).answer
    except OperatorError as e:
        return str(e)
    return e"""
    assert check_program(program, SIGNATURES).refusal is None
    assert describe_shape(program) == program


UNASSIGNED = TABLES["unassigned"]


@pytest.mark.parametrize("case", UNASSIGNED)
def test_a_variable_that_may_have_no_value_is_refused(case):
    name, line, *lines = UNASSIGNED[case]
    refusal = check_program(body(*map(str, lines)), SIGNATURES).refusal
    assert refusal is not None
    assert refusal.reason == "unassigned"
    assert repr(name) in refusal.message
    assert refusal.line == line


ASSIGNED = TABLES["assigned"]
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
