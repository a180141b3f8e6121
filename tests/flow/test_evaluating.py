"""What the evaluation of a run leaves for its report."""

from pathlib import Path

from small_task import SmallTask

from groupwise.core import read_json
from groupwise.data import read_examples
from groupwise.evaluation.prompts import read_prompts
from groupwise.flow import Task
from groupwise.flow.evaluating import list_verbs
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


def test_only_commands_that_a_task_can_do_are_told(finished: Path) -> None:
    class NoRows(SmallTask):
        read_labelled = Task.read_labelled

    every = ["predict", "serve", "evaluate", "export-model"]
    assert read_json(finished / "evaluate" / "verbs.json", list) == every
    assert list_verbs(NoRows()) == ["predict", "serve", "export-model"]
    assert "    groupwise evaluate run ROWS --out" in (finished / "report.md").read_text("utf-8")
