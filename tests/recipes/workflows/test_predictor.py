"""New problems asked of a run: prompt, answer, trace, refusals, and an executor that is away."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_server import MODEL, Fault, FaultyServer
from sandbox_host import MISSING
from workflow_problems import CHOICE, CODE, PROBLEMS, SUM, make_abilities

from groupwise.core import DataError, dump_config, load_config, write_jsonl
from groupwise.data import Problem
from groupwise.models import write_tiny_policy
from groupwise.serving import Request
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.predictor import WorkflowPredictor, read_asked
from groupwise_recipes.workflows.problems import PROBLEMS as FILE
from groupwise_recipes.workflows.problems import ask_about_problem
from groupwise_recipes.workflows.task import TASK

SHOWN = ("problem", "entry_point", "setup", "public_tests", "options")
PROMPT = "{{ operators }} {{ rules }} {{ problem }} {{ entry_point }}"
ASKS = "async def workflow(problem):\n    a = await answer_generate(problem)\n    return a.answer"
UNASSIGNED = "async def workflow(problem):\n    if problem:\n        a = '7'\n    return a"
FAILS = "async def workflow(problem):\n    return 1 // 0"


def configure(executor: dict[str, Any]) -> WorkflowsConfig:
    values = {
        "model": {"base": "tiny-qwen2", "max_pixels": 16384},
        "prompt": PROMPT,
        "executor": executor,
        "sft": None,
        "grpo": {},
    }
    return load_config(WorkflowsConfig, values)


def show(problem: Problem) -> Request:
    return Request(problem.id, {name: dump_config(problem)[name] for name in SHOWN})


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.id)
def test_a_problem_is_asked_as_in_training(problem: Problem, tmp_path: Path):
    config = configure({"stub": {}})
    asked = TASK.make_question(config, show(problem), tmp_path)
    assert asked.prompt == ask_about_problem(config, problem).prompt
    with_answers = Request(problem.id, dump_config(problem))
    assert TASK.make_question(config, with_answers, tmp_path) == TASK.make_question(
        config,
        Request(problem.id, {**show(problem).row, "problem_type": problem.problem_type}),
        tmp_path,
    )


def test_options_are_put_below_a_problem_without_them():
    bare = CHOICE.problem.partition("\n")[0]
    request = Request("x", {"problem": bare, "options": list(CHOICE.options)})
    assert read_asked(request).problem == CHOICE.problem
    assert read_asked(request).problem_type == "qa"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "needs a problem"),
        ({"problem": " "}, "needs a problem"),
        ({"problem": "x", "problem_type": "poem"}, "problem_type.*'poem'"),
        ({"problem": "x", "problem_type": "code"}, "has an entry point"),
        ({"problem": "x", "options": "A"}, "options"),
    ],
)
def test_a_row_that_is_no_problem_is_refused(row: dict[str, Any], message: str):
    with pytest.raises(DataError, match=message):
        read_asked(Request("x", row))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy("tiny-qwen2", tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run whose stub knows the problems."""
    (tmp_path / "prepare").mkdir()
    write_jsonl(tmp_path / "prepare" / FILE, map(dump_config, PROBLEMS))
    return tmp_path


@pytest.fixture
def away() -> Iterator[FaultyServer]:
    server = FaultyServer(lambda _: Fault(status=500))
    yield server
    server.close()


def answer(predictor: WorkflowPredictor, problem: Problem, program: str) -> Any:
    """Return the answer where a policy writes ``program``."""
    predictor._ask = lambda examples, **_: [program for _ in examples]
    [found] = predictor.answer([predictor.make_question(show(problem), Path())])
    return found


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_an_answer_has_its_program_and_every_call(base: Path, run: Path):
    config = configure({"stub": make_abilities(1.0).model_dump(mode="json")})
    predictor = TASK.open_predictor(config, base, run)
    found = answer(predictor, SUM, f"```python\n{ASKS}\n```")
    assert (found.answer, found.needs_person) == ("7", False)
    assert "no model" in found.reason
    assert found.details["program"].strip() == ASKS
    assert [one["reason"] for one in found.details["repairs"]] == ["fence"]
    [call] = found.details["calls"]
    assert (call["operator"], call["result"]["answer"]) == ("answer_generate", "7")
    used = found.details["usage"]
    assert call["tokens"] == used["prompt_tokens"] + used["completion_tokens"] > 0
    assert "no model" in found.details["executor"]
    refused = answer(predictor, SUM, UNASSIGNED)
    assert (refused.answer, refused.text, refused.needs_person) == (None, UNASSIGNED, True)
    assert refused.details["refusal"]["reason"] == "unassigned"
    assert refused.reason.startswith("refused (unassigned, line 4): ")
    assert refused.details["program"] == UNASSIGNED
    failed = answer(predictor, CODE, FAILS)
    assert (failed.answer, failed.details["refusal"]) == (None, None)
    assert "ZeroDivisionError" in failed.reason
    assert predictor.describe()["executor"]["model"] == "executor-stub"


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_what_the_executor_let_down_is_asked_again(base: Path, run: Path, away: FaultyServer):
    server = {"url": away.url, "model": MODEL, "prompt_price": 1e6}
    retry = {"max_attempts": 1}
    config = configure({"model": {"server": server}, "execution": {"retry": retry}})
    predictor = TASK.open_predictor(config, base, run)
    found = answer(predictor, SUM, ASKS)
    assert (found.text, found.answer, found.needs_person) == (None, None, True)
    assert "the executor failed (server_error)" in found.reason
    away.script = [Fault("<thought>x</thought><answer>8</answer>")]
    found = answer(predictor, SUM, ASKS)
    assert (found.answer, found.reason, found.details["executor"]) == ("8", "", MODEL)
    assert found.details["calls"][0]["cost"] == 10.0
