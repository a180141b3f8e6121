"""The recipe of rounds; ``groupwise learn`` starts them."""

from pathlib import Path

from groupwise.run.recipe import make_recipe

recipe = make_recipe(
    "groupwise.learning.round:TASK",
    name="round",
    summary="A round of learning from feedback; started by groupwise learn.",
    config_type="groupwise.learning.settings:RoundConfig",
    config_folder=Path(__file__).parent,
)
