"""Settings of the recipes that no machine has room or time for are refused by their keys."""

import pytest

from groupwise.core import ConfigError, load_config
from groupwise.pipeline import find_config, find_recipe


@pytest.mark.parametrize(
    "value",
    [
        "seed=-1",
        "seed=4294967296",
        "grpo.group_size=1000000000",
        "grpo.group_size=0",
        "grpo.prompts_per_step=1000000000",
        "grpo.num_iterations=1000000000",
        "grpo.max_new_tokens=1000000000",
        "grpo.temperature=1e-320",
        "grpo.learning_rate=1e400",
        "grpo.beta=.nan",
        "grpo.epochs=1000000000",
        "sft.batch_size=1000000000",
        "sft.gradient_accumulation=1000000000",
        "evaluation.batch_size=1000000000",
        "evaluation.num_items=-3",
        "data.drawn.num_sessions=1000000000",
        "data.drawn.width=1000000000",
    ],
)
def test_they_are_refused_by_key(value):
    recipe = find_recipe("on_task")
    with pytest.raises(ConfigError, match=r"^1 problem\(s\)") as caught:
        load_config(recipe.load_config_type(), find_config(recipe), overrides=[value])
    assert f"{value.partition('=')[0]}: " in str(caught.value)
