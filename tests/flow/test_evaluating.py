"""What the evaluation of a run leaves for its report."""

from pathlib import Path

from groupwise.data import read_examples
from groupwise.evaluation.prompts import read_prompts
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
