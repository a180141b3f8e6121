"""Scores of workflows, and rivals."""

import random
from dataclasses import replace

import pytest
from made_predictions import predict as predict_one
from sandbox_host import skip_without_sandbox
from tables import read_tables
from workflow_problems import CHOICE, CODE, PROBLEMS, SUM, WORDS, configure, make_abilities

from groupwise.core import Completion
from groupwise.evaluation.report.phrases import Phrases
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import RetrySettings, ServerSettings
from groupwise.rewards import FactCounts
from groupwise.sandbox import Limits
from groupwise_recipes.workflows.deciding import Decider, Decision
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import STUB_NAME, ExecutorStub
from groupwise_recipes.workflows.forms import FAULTY_SHARE, draw_form, list_sound_forms
from groupwise_recipes.workflows.measuring import predict_own
from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.outcome import ExecutionSettings, Outcome
from groupwise_recipes.workflows.problems import ask_about_problem
from groupwise_recipes.workflows.programs import Checked, Refusal, check_program
from groupwise_recipes.workflows.rewards import Success, tell_facts
from groupwise_recipes.workflows.rivals import (
    DIRECT,
    RIVALS,
    SELF_CONSISTENCY,
    Tried,
    list_rivals,
    vote,
)
from groupwise_recipes.workflows.scoring import ProgramScorer, ScoredProgram
from groupwise_recipes.workflows.sections import PHRASES, weigh_need

TABLES = read_tables(__file__)
ASK = "async def workflow(problem):\n    a = await answer_generate(problem)\n    return a.answer"
WRITE = (
    "async def workflow(problem, entry_point):\n"
    "    c = await code_generate(problem, entry_point)\n    return c.code"
)
FAIL = "async def workflow(problem):\n    return str(1 // 0)"
FORGETFUL = "async def workflow(problem):\n    if len(problem) > 3:\n        v = 'x'\n    return v"
CONFIG = configure()


def make_scorer(url, **retry):
    server = ServerSettings(url=url, model=STUB_NAME)
    settings = ExecutionSettings(retry=RetrySettings.model_validate(retry))
    executor = Executor(ServerModel(server), settings=settings)
    return ProgramScorer(executor, Decider(limits=Limits()))


@pytest.fixture(scope="module")
def stub():
    skip_without_sandbox()
    with ExecutorStub(PROBLEMS, make_abilities(1.0)) as found:
        yield found


@pytest.fixture
def scorer(stub):
    return make_scorer(stub.url)


def pay(success, *pairs):
    examples = [ask_about_problem(CONFIG, problem) for problem, _ in pairs]
    scores = success.score_batch(examples, [Completion(text) for _, text in pairs])
    return [(one.value, one.invalid) for one in scores]


def test_the_policys_own_commonest_programs_answer_all_problems_of_their_type(scorer):
    wrote = [(SUM, ASK), (SUM, ASK), (SUM, FAIL), (CHOICE, ""), (CODE, WRITE)]
    predictions = [
        predict_one(
            n, "grpo", "x", "x", fields={"problem_type": one.problem_type, "program": program}
        )
        for n, (one, program) in enumerate(wrote)
    ]
    examples = [ask_about_problem(CONFIG, problem) for problem in (SUM, CODE, CHOICE)]
    found = predict_own(scorer, predictions, examples)
    assert [one.text for one in found] == [ASK, WRITE, DIRECT]  # of choices it wrote none
    assert [one.predicted for one in found] == [one.label for one in found]
    others = [replace(one, policy="sft") for one in predictions]
    assert predict_own(scorer, others, examples) == []


def test_right_answers_of_programs_that_ran_are_paid(scorer):
    found = pay(
        Success(scorer),
        (SUM, ASK),
        (CODE, WRITE),
        (CHOICE, ASK),
        (WORDS, ASK),
        (SUM, f"```python\n{ASK}\n```"),
        (SUM, "async def workflow(problem):\n    return '8'"),
        (SUM, FAIL),
        (SUM, FORGETFUL),
        (SUM, ""),
    )
    right, wrong, refused = (1.0, False), (0.0, False), (0.0, True)
    assert found == [right] * 5 + [wrong] * 2 + [refused] * 2
    assert scorer.report()["reasons"] == {"answer": 6, "error": 1, "unassigned": 1, "empty": 1}


def test_a_fault_of_the_executor_is_no_value_and_is_not_kept(stub):
    with ExecutorStub(PROBLEMS, make_abilities(1.0)) as gone:
        url = gone.url
    down = make_scorer(url, max_attempts=1)
    catches = (
        "async def workflow(problem):\n    try:\n        a = await answer_generate(problem)\n"
        "    except Exception:\n        return '7'\n    return a.answer"
    )
    assert pay(Success(down), (SUM, ASK), (SUM, catches), (SUM, FAIL)) == [
        (None, False),
        (None, False),
        (0.0, False),
    ]
    down.executor = make_scorer(stub.url).executor
    assert pay(Success(down), (SUM, ASK)) == [(1.0, False)]


def test_equal_texts_for_a_problem_are_run_once(scorer):
    runs = []
    run_all = scorer.executor.run_all

    def count(pairs):
        runs.append(len(pairs))
        return run_all(pairs)

    scorer.executor.run_all = count
    pay(Success(scorer), (SUM, ASK), (SUM, ASK), (SUM, FAIL))
    assert sum(runs) == 2


def tell(scorer, *pairs):
    """Return what a row of metrics says of these programs."""
    examples = [ask_about_problem(CONFIG, problem) for problem, _ in pairs]
    counts = FactCounts()
    scores = Success(scorer).score_batch(examples, [Completion(text) for _, text in pairs])
    counts.add(one.facts for one in scores)
    return counts.tabulate()


def test_what_is_told_of_programs_is_told_by_type_and_adds_up(scorer):
    rows = [(SUM, ASK), (SUM, ASK), (SUM, FAIL), (CHOICE, ASK), (CHOICE, FORGETFUL), (SUM, "x =")]
    row = tell(scorer, *rows)
    facts, texts = row["facts"], row["facts"]["texts"]
    assert facts["num"] == 6
    assert facts["shares"] == TABLES["what_is_told_of_programs_is_told_by_type_and_adds_up"]
    assert row["mean/success/math"] == 0.5
    assert facts["sums"]["tokens"][0] == row["mean/tokens"] * 4 > 0
    assert texts["refused"]["commonest"] == [["unassigned", 1], ["syntax", 1]]
    assert texts["failed"]["commonest"] == [["error", 1]]
    [[program, count]] = texts["program/math"]["commonest"][:1]
    assert (program, count) == ("    v1 = await answer_generate(problem)\n    return v1.answer", 2)
    assert row["reward/collapsed"] == 1.0


def test_executed_failed_refused_and_no_value_are_all_programs(stub):
    with ExecutorStub(PROBLEMS, make_abilities(1.0)) as gone:
        down = make_scorer(gone.url, max_attempts=1)
    rows = [(SUM, ASK), (SUM, "async def workflow(problem):\n    return '7'"), (SUM, FAIL)]
    facts = tell(down, *rows, (CODE, WRITE), (CHOICE, FORGETFUL))["facts"]
    executed, known = facts["shares"]["executed"]
    without = {name: facts["texts"][name]["num"] for name in ("failed", "refused", "no value")}
    assert without == {"failed": 1, "refused": 1, "no value": 2}
    assert executed + sum(without.values()) == facts["num"] == known + without["no value"] == 5
    assert facts["texts"]["no value"]["commonest"] == [["connection", 2]]


def test_that_the_judge_gave_no_verdict_is_told():
    for value, by, expected in ((None, None, [True]), (1.0, "judge", [False]), (1.0, "rule", [])):
        decision = Decision(value, by, "", asked=by != "rule")
        told = tell_facts(ScoredProgram(Checked(""), Outcome("x"), decision), "qa")
        assert [told[name] for name in told if name == "no_verdict"] == expected


def test_two_programs_for_two_types_are_no_collapse_but_other_names_and_comments_are(scorer):
    assert tell(scorer, (SUM, ASK), (CODE, WRITE))["reward/collapsed"] == 0.0
    assert "reward/collapsed" not in tell(scorer, (SUM, ASK))
    start = "async def workflow(problem, entry_point):\n"
    said = {
        SUM: "    # math\n    math = await answer_generate(problem)\n    return math.answer",
        CHOICE: "    # qa\n    qa = await answer_generate(problem)\n    return qa.answer",
    }
    row = tell(scorer, *((problem, f"{start}{body}") for problem, body in said.items()))
    assert row["reward/collapsed"] == 1.0


class _Known:
    """A scorer that says what it is told."""

    def __init__(self, scored):
        self.scored = scored

    def score_all(self, pairs):
        return [self.scored] * len(pairs)


def test_a_refusal_says_where(scorer):
    [found] = scorer.score_all([(SUM, FORGETFUL)])
    assert found.reason == "unassigned"
    assert "line 4" in found.explanation
    refused = ScoredProgram(Checked("", Refusal("syntax", 2, "no")))
    assert (refused.worth, refused.has_run, refused.worth_if_accepted) == (0.0, False, None)


NAMES = signatures(OPERATORS)


@pytest.mark.parametrize("program", [*list_sound_forms(), DIRECT, SELF_CONSISTENCY])
def test_fixed_programs_pass_the_checks(program):
    assert check_program(program, NAMES).refusal is None


def test_the_warm_up_has_its_share_of_mistakes():
    drawn = [draw_form(random.Random(seed), kind="code") for seed in range(600)]
    reasons = [found.reason for one in drawn if (found := check_program(one, NAMES).refusal)]
    assert set(reasons) == {"not_awaited", "unassigned"}
    assert abs(len(reasons) / len(drawn) - FAULTY_SHARE) < 0.04
    assert "#" not in draw_form(random.Random(0))


def test_a_type_is_said_with_words_of_its_own_and_changes_nothing_else():
    plans = {"math": set(), "code": set(), "qa": set()}
    for seed in range(300):
        plain = draw_form(random.Random(seed))
        for kind, found in plans.items():
            head, said, *body = draw_form(random.Random(seed), kind=kind).split("\n")
            assert [head, *body] == plain.split("\n")
            mark, told, plan, _ = said.split()
            assert (mark, told) == ("#", kind)
            found.add(plan)
    assert {len(found) for found in plans.values()} == {8}
    assert len(set.union(*plans.values())) == 24


def choose(problem, **tried):
    rows = [Tried(kind, text, right, 10, tokens) for kind, text, right, tokens in tried.values()]
    return {one.name: list(one.choose(problem)) for one in list_rivals(rows)}


def test_the_best_by_type_the_best_for_all_and_the_best_operator_which_is_one_call():
    tried = TABLES["the_best_by_type_and_the_best_for_all"]
    found = choose(SUM, **tried)
    assert set(found) == set(RIVALS)
    assert (found["best_by_type"], found["top_by_type"]) == (["C"], ["C", "A", "B"])
    assert found["best_single"] == ["B"]
    assert choose(CODE, **tried)["best_by_type"] == ["B"]
    assert choose(CHOICE, **tried)["best_by_type"] == ["B"]  # a type that was never tried
    one = "async def workflow(problem):\n    a = await custom(problem, 'x')\n    return a.response"
    two = f"{one}\n    b = await format(problem, 'x')"
    many = one.replace("    a =", "    for i in range(3):\n        a =")
    tried = {"a": ("math", two, 9, 5), "b": ("math", many, 9, 5), "c": ("math", one, 1, 5)}
    assert choose(SUM, **tried)["best_operator"] == [one]
    assert choose(CODE, **tried)["best_operator"] == [DIRECT]


def test_answers_vote_and_the_first_of_equals_wins():
    assert vote({"A": "7", "B": "8", "C": "The answer is 8."}) == "B"
    assert vote({"A": "7", "B": "8"}) == "A"
    assert vote({"A": None, "B": "8"}) == "B"
    assert vote({"A": None}) is None


def predict(policy, rights, tokens):
    said = {"1": "x", "0": "y"}
    fields = {"tokens": tokens}
    return [predict_one(n, policy, "x", said[one], fields=fields) for n, one in enumerate(rights)]


def weigh(ours, theirs, *, tokens=10, name="best_by_type"):
    found = {"grpo": predict("grpo", ours, 10), name: predict(name, theirs, tokens)}
    return weigh_need(found, Phrases("en", own=PHRASES))


def test_a_policy_is_needed_where_it_beats_what_costs_no_more():
    best, worse = "1" * 20, "0" * 12 + "1" * 8
    assert "is needed here" in weigh(best, worse)
    assert "only grpo is right on 12 problems" in weigh(best, worse)
    for ours, theirs in ((best, best), (worse, best), (best, "0" * 3 + "1" * 17)):
        assert "not shown to be needed" in weigh(ours, theirs)
    assert "none is compared" in weigh(best, "0" * 20, tokens=11)
    assert "none is compared" in weigh(best, "0" * 20, name="prompt")
    found = {
        "grpo": predict("grpo", best, 10),
        "direct": predict("direct", worse, 5),
        "own_by_type": predict("own_by_type", "1" * 19 + "0", 11),
    }
    said = weigh_need(found, Phrases("en", own=PHRASES))
    assert "own_by_type is the best" in said
    assert "not shown to be needed" in said, "it only chooses by type"
