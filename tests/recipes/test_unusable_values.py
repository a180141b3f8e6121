"""Settings of the recipes that no machine has room or time for are refused by their keys."""

import pytest
from tables import read_tables

from groupwise.core import ConfigError, load_config
from groupwise.pipeline import find_config, find_recipe

TABLES = read_tables(__file__)


@pytest.mark.parametrize("value", TABLES["they_are_refused_by_key"])
def test_they_are_refused_by_key(value):
    recipe = find_recipe("on_task")
    with pytest.raises(ConfigError, match=r"^1 problem\(s\)") as caught:
        load_config(recipe.load_config_type(), find_config(recipe), overrides=[value])
    assert f"{value.partition('=')[0]}: " in str(caught.value)
