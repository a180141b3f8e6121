"""Models behind servers: what a run looks for on this machine before it starts."""

from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from corpora import each_row, read_corpus
from plan_keys import plan

from groupwise.core import ConfigError, load_config
from groupwise.run.recipe import find_config, find_recipe
from groupwise.run.running import run_recipe
from groupwise.run.stages import UNKNOWN

HERE = Path(__file__).parent
ROWS = read_corpus("served_models")


@pytest.fixture(autouse=True)
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local cache of the hub has nothing in it, and the hub is out of reach."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(HERE.parents[1])


@each_row("served_models")
def test_what_is_served_is_not_looked_for(row: dict[str, Any], tmp_path: Path) -> None:
    steps = plan(row["recipe"], tmp_path / "run", row["config"], *row["settings"])
    names = [step.name for step in steps]
    if "until" in row:
        names = [*takewhile(lambda name: name != row["until"], names), row["until"]]
    sought = {
        name
        for step in steps
        if step.name in names
        for name, found in step.inputs.items()
        if found == UNKNOWN
    }
    assert sorted(sought) == row["expected"]


def test_a_tokenizer_out_of_reach_may_be_left_out(tmp_path: Path) -> None:
    (row,) = [row for row in ROWS if row["name"] == "judge_with_tokenizer"]
    recipe = find_recipe(row["recipe"])
    path = find_config(recipe, row["config"])
    config = load_config(recipe.load_config_type(), path, overrides=row["settings"])
    with pytest.raises(ConfigError, match=r"judge\.tokenizer: .*, or leave it out"):
        run_recipe(recipe, config, out=tmp_path / "run")
