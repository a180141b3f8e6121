"""What programs are worth: refused, failed, wrong, right, or nobody's to say."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_host import MISSING
from workflow_problems import CHOICE, CODE, PROBLEMS, SUM, WORDS, make_abilities

from groupwise.core import Completion, Example
from groupwise.data import Problem
from groupwise.inference import RetrySettings, ServerEngine, ServerSettings
from groupwise.sandbox import Limits
from groupwise_recipes.workflows.config import RewardSettings, WorkflowsConfig
from groupwise_recipes.workflows.deciding import Decider, Decision
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import STUB_NAME, ExecutorStub
from groupwise_recipes.workflows.outcome import ExecutionSettings, Outcome
from groupwise_recipes.workflows.problems import ask_about_problem
from groupwise_recipes.workflows.programs import Checked, Refusal
from groupwise_recipes.workflows.rewards import Success, make_rewards, make_success
from groupwise_recipes.workflows.scoring import ProgramScorer, ScoredProgram

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

ASK = "async def workflow(problem):\n    a = await answer_generate(problem)\n    return a.answer"
WRITE = (
    "async def workflow(problem, entry_point):\n"
    "    c = await code_generate(problem, entry_point)\n    return c.code"
)
FAIL = "async def workflow(problem):\n    return str(1 // 0)"
FORGETFUL = "async def workflow(problem):\n    if len(problem) > 3:\n        v = 'x'\n    return v"
CONFIG = WorkflowsConfig.model_validate(
    {
        "model": {"base": "tiny-qwen2", "max_pixels": 16384},
        "sft": {"epochs": 1},
        "grpo": {},
        "executor": {"stub": {}},
    }
)


def make_scorer(url: str, **retry: object) -> ProgramScorer:
    server = ServerSettings(url=url, model=STUB_NAME)
    settings = ExecutionSettings(retry=RetrySettings.model_validate(retry))
    executor = Executor(ServerEngine(server), settings=settings)
    return ProgramScorer(executor, Decider(limits=Limits()))


@pytest.fixture(scope="module")
def stub() -> Iterator[ExecutorStub]:
    with ExecutorStub(PROBLEMS, make_abilities(1.0)) as found:
        yield found


@pytest.fixture
def scorer(stub: ExecutorStub) -> ProgramScorer:
    return make_scorer(stub.url)


def pay(success: Success, *pairs: tuple[Problem, str]) -> list[tuple[float | None, bool]]:
    examples = [ask_about_problem(CONFIG, problem) for problem, _ in pairs]
    scores = success.score_batch(examples, [Completion(text) for _, text in pairs])
    return [(one.value, one.invalid) for one in scores]


def test_right_answers_of_programs_that_ran_are_paid(scorer: ProgramScorer) -> None:
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
    assert scorer.report()["reasons"] == {
        "answer": 6,
        "error": 1,
        "unassigned": 1,
        "empty": 1,
    }


def test_a_fault_of_the_executor_is_no_value_and_is_not_kept(stub: ExecutorStub) -> None:
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


def test_equal_texts_for_a_problem_are_run_once(scorer: ProgramScorer) -> None:
    runs: list[int] = []
    run_all = scorer.executor.run_all

    def count(pairs: Sequence[tuple[str, Problem]]) -> list[Outcome]:
        runs.append(len(pairs))
        return run_all(pairs)

    scorer.executor.run_all = count
    rewards = make_rewards(Success(scorer), ("math", "qa"))
    example = ask_about_problem(CONFIG, SUM)
    rewards.score_batch([example] * 3, [Completion(ASK), Completion(ASK), Completion(FAIL)])
    assert sum(runs) == 2


def test_what_is_watched_weighs_nothing_and_is_told_by_type(scorer: ProgramScorer) -> None:
    rewards = make_rewards(Success(scorer), ("math", "code", "qa"))
    assert {name for name, weight in rewards.weights.items() if weight} == {"success"}
    rows = [(SUM, ASK), (SUM, ASK), (SUM, FAIL), (CHOICE, ASK), (CHOICE, FORGETFUL)]
    scores = rewards.score_batch(
        [ask_about_problem(CONFIG, problem) for problem, _ in rows],
        [Completion(text) for _, text in rows],
    )
    parts = [score.breakdown for score in scores]
    assert [one["executed"] for one in parts] == [1, 1, 0, 1, 0]
    assert [one["correct"] for one in parts] == [1, 1, 0, 1, 0]
    assert [one["correct_math"] for one in parts] == [1, 1, 0, None, None]
    assert [one["correct_code"] for one in parts] == [None] * 5
    assert [one["commonest_qa"] for one in parts] == [None, None, None, 1, 0]
    assert sum(one["distinct"] or 0 for one in parts) == pytest.approx(3)
    assert [one["collapsed"] for one in parts] == [1] * 5
    assert [score.value for score in scores] == [1, 1, 0, 1, 0]


def test_two_programs_for_two_types_are_no_collapse(scorer: ProgramScorer) -> None:
    rewards = make_rewards(Success(scorer), ())
    examples: list[Example] = [ask_about_problem(CONFIG, one) for one in (SUM, CODE)]
    scores = rewards.score_batch(examples, [Completion(ASK), Completion(WRITE)])
    assert [one.breakdown["collapsed"] for one in scores] == [0, 0]
    [alone] = rewards.score_batch(examples[:1], [Completion(ASK)])
    assert alone.breakdown["collapsed"] is None


def test_a_program_with_other_names_and_comments_is_the_same_program(scorer: ProgramScorer) -> None:
    rewards = make_rewards(Success(scorer), ())
    said = {
        SUM: "    # math\n    math = await answer_generate(problem)\n    return math.answer",
        CHOICE: "    # qa\n    qa = await answer_generate(problem)\n    return qa.answer",
    }
    scores = rewards.score_batch(
        [ask_about_problem(CONFIG, problem) for problem in said],
        [
            Completion(f"async def workflow(problem, entry_point):\n{body}")
            for body in said.values()
        ],
    )
    assert [one.breakdown["collapsed"] for one in scores] == [1, 1]
    assert [one.breakdown["distinct"] for one in scores] == [0.5, 0.5]


class _Known:
    """A scorer that says what it is told."""

    def __init__(self, scored: ScoredProgram) -> None:
        self.scored = scored

    def score_all(self, pairs: Sequence[object]) -> list[ScoredProgram]:
        return [self.scored] * len(pairs)


def _spend(tokens: int) -> Outcome:
    from groupwise.inference import Usage

    return Outcome("x", usage={"custom": Usage(1, tokens, 0)})


@given(
    weight=st.floats(0, 0.5),
    dear=st.integers(0, 10**9),
    cheap=st.integers(0, 10**9),
    limit=st.integers(1, 10**6),
)
def test_no_cost_lets_a_wrong_answer_win(weight: float, dear: int, cheap: int, limit: int) -> None:
    def earn(worth: float, tokens: int) -> float | None:
        scored = ScoredProgram(Checked("x"), _spend(tokens), Decision(worth, "rule", ""))
        settings = RewardSettings(cost_weight=weight, cost_tokens=limit)
        return pay(make_success(settings, _Known(scored)), (SUM, "x"))[0][0]  # pyright: ignore

    right, wrong = earn(1.0, dear), earn(0.0, cheap)
    assert right is not None
    assert right >= 0.5
    assert wrong == 0.0


def test_a_refusal_says_where(scorer: ProgramScorer) -> None:
    [found] = scorer.score_all([(SUM, FORGETFUL)])
    assert found.reason == "unassigned"
    assert "line 4" in found.explanation
    refused = ScoredProgram(Checked("", Refusal("syntax", 2, "no")))
    assert (refused.worth, refused.has_run, refused.worth_if_accepted) == (0.0, False, None)
