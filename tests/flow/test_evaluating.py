"""What the evaluation of a run leaves for its report."""

from pathlib import Path

import pytest
from small_task import LORA, SmallConfig, SmallTask

from groupwise.core import Completion, Example, Message, make_example, read_json
from groupwise.data import read_examples
from groupwise.evaluation.looks import list_looks
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import Measure, read_prompts
from groupwise.flow import Task, asking
from groupwise.flow.evaluating import list_slices, list_verbs
from groupwise.models import load_policy


def test_the_shown_prompt_is_what_the_trained_policy_was_asked(finished: Path) -> None:
    asked = read_prompts(finished / "evaluate" / "prompts.json")
    examples = {one.id: one for one in read_examples(finished / "prepare" / "test.jsonl")}
    assert asked.shown == load_policy(finished / "grpo" / "policy").render_prompt(
        examples[asked.item]
    )
    assert asked.turns == {name: one.prompt[-1].text for name, one in examples.items()}
    page = (finished / "report.md").read_text(encoding="utf-8")
    assert "## What training changed" in page
    assert "## The prompt as the model sees it" in page


def test_the_measurement_of_the_test_split_is_one_look_at_the_items_it_is_of(
    finished: Path,
) -> None:
    (digest,) = {one.split_digest for one in read_metrics(finished / "evaluate/metrics.json")}
    (look,) = list_looks(finished, digest)
    assert (look.run, look.seed) == ("run", 0)
    assert "has been looked at 1\N{NO-BREAK SPACE}time by runs in" in (
        finished / "report.md"
    ).read_text("utf-8")


def test_only_commands_that_a_task_can_do_are_told(finished: Path) -> None:
    class NoRows(SmallTask):
        read_labelled = Task.read_labelled

    every = ["predict", "serve", "evaluate", "export-model"]
    assert read_json(finished / "evaluate" / "verbs.json", list) == every
    assert list_verbs(NoRows()) == ["predict", "serve", "export-model"]
    # The report offers none of them: a policy that learned nothing is not for use.
    report = (finished / "report.md").read_text("utf-8")
    assert "GRPO is not offered for use" in report
    assert "groupwise evaluate run ROWS" not in report


def test_a_field_of_too_many_values_is_no_slice() -> None:
    class Sliced(SmallTask):
        slices = ("part", "kind", "absent")

    def make(number: int) -> Example:
        fields = {"part": number % 20, "kind": number}
        return make_example([Message("user", "?")], cluster=str(number), fields=fields)

    assert list_slices(Sliced(), [make(n) for n in range(21)]) == ["part"]
    assert list_slices(Sliced(), [make(n) for n in range(20)]) == ["part", "kind"]


@pytest.mark.parametrize(("is_higher_better", "first"), [(True, "length"), (False, "accuracy")])
def test_the_headline_measure_chooses_a_checkpoint_where_more_is_better(
    is_higher_better: bool, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Headed(SmallTask):
        headline = "length"
        measures = (Measure("length", "Length", "长度", is_higher_better=is_higher_better),)

        def measure_heldout(self, config, examples, texts):
            return {"length": 3.0}

    answers = [Completion("x", token_ids=(1,), finish_reason="stop")]
    monkeypatch.setattr(asking, "answer_greedily", lambda *_: answers)
    example = make_example([Message("user", ["A?"])], cluster="1", label="yes")
    values = asking.check_heldout(Headed(), None, [example], SmallConfig(**LORA), run=Path())
    assert next(iter(values)) == first
    own = {"accuracy": 0.0, "invalid": 1.0, "length": 3.0}
    assert values == own | {"commonest": 0.0, "majority": 1.0, "n": 1}
