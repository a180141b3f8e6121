"""The rewards of every shipped config pass the audit."""

from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.core import Message, load_config, make_example
from groupwise.data import write_examples
from groupwise.pipeline import find_config, find_recipe, list_configs
from groupwise.rewards import AnswerFormat, audit_rewards

RECIPE = find_recipe("on_task")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with training pairs: with and without what a description needs."""
    described = {"activity": "coding", "task_activity": "video"}
    examples = [
        make_example(
            [Message("user", f"Task: 第{number}页\nIs this screen on-task or off-task?")],
            cluster=str(number),
            label=("on-task", "off-task")[number % 2],
            fields={"task": f"第{number}页", **(described if number % 4 < 2 else {})},
        )
        for number in range(20)
    ]
    (tmp_path / "prepare").mkdir()
    write_examples(tmp_path / "prepare" / "train.jsonl", examples)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name.startswith("qwen2.5-vl-3b") else name
        for name in list_configs(RECIPE)
    ],
)
def test_shipped_rewards_pass(run: Path, name: str) -> None:
    config = load_config(RECIPE.load_config_type(), find_config(RECIPE, name))
    assert RECIPE.rewards is not None
    audit = audit_rewards(RECIPE.rewards().collect(config, run))
    assert [(finding.name, finding.where) for finding in audit.findings] == []
    assert {row.name for row in audit.rows if not row.num_tried} == set()


def test_a_broken_reward_in_its_place_is_refused(run: Path) -> None:
    config = load_config(RECIPE.load_config_type(), find_config(RECIPE, "demo"))
    assert RECIPE.rewards is not None
    case = RECIPE.rewards().collect(config, run)
    audit = audit_rewards(replace(case, rewards=AnswerFormat(config.answer), seat=None))
    assert "reward/pays-wrong-answer" in [finding.name for finding in audit.errors]
