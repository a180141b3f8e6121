"""Evaluating on some items of the test split, and what depends on how many there are."""

from pathlib import Path

import pytest

from groupwise.core import DataError, Example, Message, load_config, make_example
from groupwise.flow.asking import draw_items
from groupwise.flow.stages import TRAINED
from groupwise.pipeline import Step, find_config, find_recipe
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.recipe import recipe

EXAMPLES = [
    make_example([Message("user", f"第 {n} 题")], cluster=str(n), label="x") for n in range(40)
]


def load(**evaluation: object) -> OnTaskConfig:
    recipe = find_recipe("on_task")
    overrides = [f"evaluation.{key}={value}" for key, value in evaluation.items()]
    return load_config(OnTaskConfig, find_config(recipe, "demo"), overrides=overrides)


def draw(num_items: int | str, seed: int = 0, examples: list[Example] = EXAMPLES) -> list[str]:
    config = load(num_items=num_items).model_copy(update={"seed": seed})
    return [example.id for example in draw_items(examples, config)]


def test_fewer_items_are_among_more_and_all_keep_their_order() -> None:
    every = [example.id for example in EXAMPLES]
    drawn = {number: draw(number) for number in (1, 7, 20, 40)}
    assert [len(ids) for ids in drawn.values()] == [1, 7, 20, 40]
    assert set(drawn[1]) < set(drawn[7]) < set(drawn[20]) < set(drawn[40])
    assert all(ids == [name for name in every if name in ids] for ids in drawn.values())
    assert draw("null") == every


def test_the_draw_is_random_by_the_seed_and_not_by_the_order_of_the_file() -> None:
    assert draw(20) == draw(20)
    assert draw(20) != draw(20, seed=1)
    assert draw(20) != [example.id for example in EXAMPLES[:20]]
    assert set(draw(20)) == set(draw(20, examples=EXAMPLES[::-1]))


def test_more_than_there_are_is_refused_with_their_number() -> None:
    with pytest.raises(DataError, match=r"got 41; expected at most 40\."):
        draw(41)


def list_steps(*overrides: str) -> dict[str, Step]:
    config = load_config(
        OnTaskConfig, find_config(find_recipe("on_task"), "demo"), overrides=overrides
    )
    return {step.name: step for step in recipe.plan(config, Path("nowhere"))}


@pytest.mark.parametrize(
    ("override", "changed"),
    [
        ("evaluation.num_items=3", {"baselines", "evaluate"}),
        ("evaluation.num_heldout_items=3", {"grpo"}),
        ("grpo.beta=0.5", {"grpo"}),
        ("grpo.max_new_tokens=20", {"baselines", "grpo", "sft_control", "evaluate"}),
        ("grpo.learning_rate=1e-6", {"grpo", "sft_control"}),
        ("grpo.trainable.method=lora", {"grpo", "sft_control"}),
        ("rewards.format=0.2", {"grpo"}),
        ("sft.written_tasks=0.2", {"prepare", "sft", "sft_control"}),
        ("sft.epochs=2", {"sft", "sft_control"}),
        ("model.dtype=bfloat16", {"baselines", *TRAINED, "evaluate"}),
        ("data.budget.max_prompt_tokens=300", {"prepare", "audit"}),
    ],
)
def test_a_setting_redoes_the_steps_that_read_it(override: str, changed: set[str]) -> None:
    before, after = list_steps(), list_steps(override)
    found = {name for name in before if before[name].settings != after[name].settings}
    assert found == changed
