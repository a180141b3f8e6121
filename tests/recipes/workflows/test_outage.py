"""The executor's process is killed in the middle of programs, and started again or not."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from sandbox_host import MISSING
from stub_process import StubProcess
from workflow_problems import SUM, open_stub

from groupwise.core import Example, dump_config, write_jsonl
from groupwise.inference import Reply, RetrySettings, Sampling
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import ExecutorStub
from groupwise_recipes.workflows.outcome import ExecutionSettings, Outcome

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
PROGRAM = """
async def workflow(problem):
    a = await answer_generate(problem)
    r = await review(problem, a.answer)
    if r.ok:
        return a.answer
    return (await revise(problem, a.answer, r.feedback)).solution
"""
PROBLEMS = [
    SUM.model_copy(update={"id": f"s{n}", "problem": f"What is {n} + 1?", "ground_truth": str(n)})
    for n in range(12)
]
PAIRS = [(PROGRAM, problem) for problem in PROBLEMS]


class Watched:
    """A responder that lets something happen before one of the requests."""

    def __init__(self, responder: Any, *, before: int, happen: Callable[[], None]) -> None:
        self.responder = responder
        self.left = before
        self.happen = happen

    @property
    def identity(self) -> Mapping[str, str | None]:
        return self.responder.identity

    async def respond(self, example: Example, *, sampling: Sampling) -> Reply:
        self.left -= 1
        if self.left == 0:
            self.happen()
        return await self.responder.respond(example, sampling=sampling)

    async def weigh_labels(self, example: Example, *, labels: Any) -> Any:
        raise NotImplementedError


@pytest.fixture(scope="module")
def undisturbed() -> list[Outcome]:
    with ExecutorStub(PROBLEMS) as stub:
        outcomes = Executor(open_stub(stub)).run_all(PAIRS)
    assert {outcome.fault for outcome in outcomes} == {None}
    return outcomes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubProcess]:
    path = tmp_path_factory.mktemp("stub") / "problems.jsonl"
    write_jsonl(path, [dump_config(problem) for problem in PROBLEMS])
    server = StubProcess(path)
    yield server
    server.kill()


def test_an_outage_shorter_than_the_retries_changes_nothing(
    server: StubProcess, undisturbed: list[Outcome]
):
    starting = threading.Thread(target=server.restart)

    def kill() -> None:
        server.kill()
        starting.start()

    retry = RetrySettings(max_attempts=200, base_delay_s=0.05, max_delay_s=0.1)
    watched = Watched(open_stub(server), before=8, happen=kill)  # pyright: ignore
    executor = Executor(watched, settings=ExecutionSettings(retry=retry, max_at_once=4))
    assert executor.run_all(PAIRS) == undisturbed
    starting.join()
    report = executor.report()
    assert report["outcomes"] == {"value": len(PAIRS)}
    assert report["failed_requests"]["connection"] > 0


def test_a_longer_outage_leaves_the_rewards_of_its_requests_open(
    server: StubProcess, undisturbed: list[Outcome]
):
    retry = RetrySettings(max_attempts=2, base_delay_s=0.01)
    watched = Watched(open_stub(server), before=8, happen=server.kill)  # pyright: ignore
    executor = Executor(watched, settings=ExecutionSettings(retry=retry, max_at_once=1))
    outcomes = executor.run_all(PAIRS)
    num_before = [outcome.fault for outcome in outcomes].index("executor")
    assert 2 <= num_before <= 4
    assert outcomes[:num_before] == undisturbed[:num_before]
    for outcome in outcomes[num_before:]:
        assert (outcome.value, outcome.fault, outcome.reason) == (None, "executor", "connection")
    num_failed = len(PAIRS) - num_before
    report = executor.report()
    assert report["outcomes"] == {"value": num_before, "executor": num_failed}
    assert report["failed_requests"] == {"connection": num_failed * retry.max_attempts}
    server.restart()
    assert executor.run_all(PAIRS) == undisturbed
