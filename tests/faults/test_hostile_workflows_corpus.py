"""No attack through operators earns anything, harms the next program, or ends the training."""

from collections.abc import Iterator, Mapping

import pytest
from faulty_server import MODEL, Fault, FaultyServer
from program_corpora import ATTACKS, Program
from sandbox_host import MISSING, read_host_state, wait_for_children
from workflow_problems import WORDS, make_abilities, open_stub

from groupwise.inference.server import ServerModel
from groupwise.inference.settings import RetrySettings, ServerSettings
from groupwise.judges import GenerativeJudge, Question, Verdict, judge_all, load_prompt
from groupwise.sandbox import Limits
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import ExecutorStub
from groupwise_recipes.workflows.outcome import ExecutionSettings, Outcome

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
TRUTH = "SECRET-48151623"
PROBLEM = WORDS.model_copy(update={"ground_truth": TRUTH, "answers": ()})
HARMLESS = "async def workflow(problem):\n    return (await custom(problem, '')).response"
SETTINGS = ExecutionSettings(max_at_once=3, retry=RetrySettings(max_attempts=2, base_delay_s=0.0))
PROGRAM = Limits(timeout_s=3.0, cpu_s=1, memory_mib=192, output_kib=16, file_mib=1)


@pytest.fixture(scope="module")
def stub() -> Iterator[ExecutorStub]:
    """An executor that is always wrong, and a judge that is always right."""
    with ExecutorStub([PROBLEM], make_abilities(0.0, judge=1.0)) as stub:
        yield stub


@pytest.fixture(scope="module")
def outcomes(stub: ExecutorStub) -> Mapping[str, Outcome]:
    """Outcomes by name."""
    faulty = FaultyServer(lambda _: Fault(status=500))
    broken = ServerModel(ServerSettings(url=faulty.url, model=MODEL))
    found: dict[str, Outcome] = {}
    for has_outage, responder in ((False, open_stub(stub)), (True, broken)):
        executor = Executor(responder, settings=SETTINGS, program=PROGRAM)
        attacks = [w for w in ATTACKS if ("outage" in w.words) == has_outage]
        ended = executor.run_all([(w.program, PROBLEM) for w in attacks])
        found |= {w.name: outcome for w, outcome in zip(attacks, ended, strict=True)}
    faulty.close()
    return found


def test_there_are_enough_of_them():
    assert len({workflow.name for workflow in ATTACKS}) == len(ATTACKS) == 61


@pytest.mark.parametrize("workflow", ATTACKS, ids=lambda workflow: workflow.name)
def test_an_attack_ends_as_it_should(workflow: Program, outcomes: Mapping[str, Outcome]):
    outcome = outcomes[workflow.name]
    assert (outcome.reason or "value") in workflow.words, outcome
    fault = "executor" if "outage" in workflow.words else "policy" if outcome.reason else None
    assert outcome.fault == fault
    assert (outcome.value is None) == bool(outcome.reason)
    assert "SECRET-4" not in repr(outcome)
    assert outcome.calls <= SETTINGS.max_calls + 1


def test_no_value_of_an_attack_persuades_the_judge(
    stub: ExecutorStub, outcomes: Mapping[str, Outcome]
):
    said = [outcome.value for outcome in outcomes.values() if outcome.value is not None]
    assert len(said) >= 15
    judge = GenerativeJudge(open_stub(stub), load_prompt("correct"))
    texts = {"question": PROBLEM.problem, "reference": TRUTH}
    verdicts = judge_all(judge, [Question({**texts, "answer": text}) for text in [*said, TRUTH]])
    labels = [verdict.label for verdict in verdicts if isinstance(verdict, Verdict)]
    assert labels == ["False"] * len(said) + ["True"]


def test_nothing_is_left_of_an_attack(stub: ExecutorStub, outcomes: Mapping[str, Outcome]):
    executor = Executor(open_stub(stub), settings=SETTINGS, program=PROGRAM)
    executor.run_all([(HARMLESS, PROBLEM)])
    before = read_host_state()
    attacks = [w for w in ATTACKS if outcomes[w.name].reason in ("calls", "crashed")]
    assert len(attacks) >= 6
    executor.run_all([(w.program, PROBLEM) for w in attacks])
    left = read_host_state()
    assert {name for name in left.files - before.files if "socket" not in name} == set()
    assert wait_for_children(before.children) == frozenset()
    assert executor.run_all([(f"{HARMLESS}\n", PROBLEM)])[0].fault is None
