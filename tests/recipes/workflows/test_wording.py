"""Code problems as a signature and a docstring: the words stay, and what decides is not shown."""

import ast
import inspect
from pathlib import Path

import pytest
from workflow_problems import CHOICE, CODE, SUM

from groupwise.core import load_config
from groupwise.data import Problem
from groupwise_drawn.problems import draw_problems
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.problems import choose_examples
from groupwise_recipes.workflows.scoring import read_problem
from groupwise_recipes.workflows.wording import word_as_stub

DEMO = Path(__file__).parents[3] / "src/groupwise_recipes/workflows/configs/demo.yaml"
ADD = Problem(
    id="add",
    source="made",
    problem_type="code",
    problem="Write a function to add.\n\nThe function is called `add`; this holds:\n\nassert ...",
    ground_truth="import math\ndef add(a, b=2):\n    return a + b",
    entry_point="add",
    public_tests=("assert add(1, 2) == 3", "assert add(1, 2) is not None"),
    hidden_tests=("assert add(2, 2) == 4",),
    cluster="add",
)


def test_a_stub_has_the_signature_the_task_and_the_public_tests() -> None:
    assert word_as_stub(ADD).problem == (
        "Complete this Python function.\n\ndef add(a, b=2):\n"
        '    """Write a function to add.\n    >>> add(1, 2)\n    3\n    """'
    )
    assert word_as_stub(ADD).model_copy(update={"problem": ADD.problem}) == ADD


def test_drawn_code_is_a_function_without_a_body_and_shows_no_hidden_test() -> None:
    drawn = [one for one in draw_problems(60, seed=1, split="train") if one.problem_type == "code"]
    assert len(drawn) >= 15
    for problem in drawn:
        text = word_as_stub(problem).problem
        [function] = ast.parse(text.partition("\n\n")[2]).body
        assert isinstance(function, ast.FunctionDef)
        assert function.name == problem.entry_point
        said = inspect.cleandoc(ast.get_docstring(function) or "")
        assert said.startswith(problem.problem.partition("\n\n")[0].strip())
        assert not any(test in text for test in problem.hidden_tests)


@pytest.mark.parametrize(("share", "is_stub"), [(1.0, {True}), (0.0, {False})])
def test_the_share_is_of_the_warm_up_alone(share: float, is_stub: set[bool]) -> None:
    overrides = (f"data.stub_share={share}", "data.num_generated=60", "data.mix=null")
    config = load_config(WorkflowsConfig, DEMO, overrides=overrides)
    examples, _ = choose_examples(config)
    found = {
        split: {
            "Complete this Python" in read_problem(one).problem
            for one in rows
            if one.fields["problem_type"] == "code"
        }
        for split, rows in examples.items()
    }
    others = {split: {False} for split in ("train", "validation", "test")}
    assert found == others | {"warmup": is_stub}


def test_what_is_no_function_stays() -> None:
    broken = CODE.model_copy(update={"ground_truth": "def ("})
    other = ADD.model_copy(update={"entry_point": "subtract"})
    for problem in (SUM, CHOICE, broken, other):
        assert word_as_stub(problem) == problem
