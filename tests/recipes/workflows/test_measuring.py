"""What the report says of costs, of programs without an answer, and of a rival that did not run."""

from typing import Any

from groupwise.core import load_config
from groupwise.evaluation.predictions import Policies, Prediction
from groupwise.evaluation.report.tables import Section
from groupwise.pipeline import find_recipe
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.sections import make_sections

DEMO = find_recipe("workflows").config_folder / "demo.yaml"
FOUND: dict[str, Any] = {
    "prompt": "Now: {{ problem }}",
    "score": 0.5,
    "given_score": 0.25,
    "num_executions": 40,
    "num_prompts": 2,
    "num_validation": 4,
    "num_reflections": 9,
    "refused": {"lost_place": 3},
}


def predict(policy: str, reason: str = "") -> Prediction:
    return Prediction(
        example_id="1",
        cluster="1",
        split="test",
        policy=policy,
        label="x",
        predicted=None if reason else "x",
        reason=reason,
        text="async def workflow(problem):\n    return problem",
        fields={"problem_type": "math", "tokens": 1, "calls": 1, "program": "p"},
        scores={"executed": float(not reason)},
    )


def describe(
    *predictions: Prediction, optimised: dict[str, Any] | None = None, **settings: object
) -> dict[str, Section]:
    overrides = [f"{name}={value}" for name, value in settings.items()]
    config = load_config(WorkflowsConfig, DEMO, overrides=overrides)
    found = make_sections(predictions, config, Policies(), optimised=optimised)
    chinese = [one for one in found if one.language == "zh"]
    assert len(chinese) * 2 == len(found)
    return {one.title: one for one in found if one.language == "en"}


def test_gepa_without_a_model_that_reflects_is_unknown_and_said_to_be() -> None:
    found = describe(predict("grpo"))
    costs = found["Accuracy and cost"]
    assert costs.tables[0].rows[-1] == ("gepa", "?", "?", "?", "?", "?")
    assert "no model that reflects is configured (gepa.model)" in costs.text
    assert "Prompt optimised by GEPA" not in found


def test_gepa_is_measured_where_it_ran() -> None:
    found = describe(predict("gepa"), predict("grpo"), optimised=FOUND)
    costs = found["Accuracy and cost"]
    assert [row[0] for row in costs.tables[0].rows] == ["gepa", "grpo"]
    assert "?" not in costs.text + str(costs.tables[0].rows)
    told = found["Prompt optimised by GEPA"]
    for said in ("ran: 40", "reflects: 9", "among them: 2", "0.500", "0.250", "3 lost_place"):
        assert said in told.text
    assert told.tables[0].rows == (("Now: {{ problem }}",),)


def test_programs_without_an_answer_are_counted_with_what_the_policy_was_told() -> None:
    rows = [predict("sft", "unassigned"), predict("sft"), predict("grpo", "timeout")]
    rules = "'{{ rules }} {{ problem }}'"

    def tell(**settings: object) -> str:
        return describe(*rows, **settings)["Programs without an answer"].text

    found = describe(*rows)["Programs without an answer"].tables[0].rows
    assert found == (
        ("sft", "unassigned", "50.0\u00a0%\n1 of 2"),
        ("grpo", "timeout", "100.0\u00a0%\n1 of 1"),
    )
    assert "has no rules" in tell(assign_first=False)
    assert "prompt has the rule" in tell(prompt=rules)
    assert "prompt does not have the rule" in tell(prompt=rules, assign_first=False)


def test_programs_are_shown_whole_as_code() -> None:
    table = describe(predict("sft"), predict("grpo"))["Programs by type"].tables[0]
    assert table.kind == "wrap"
    assert all(row[2].is_code for row in table.cells)
