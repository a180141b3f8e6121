"""Finding recipes and configs; running and checking a recipe as a whole."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.core import Config, ConfigError, load_config
from groupwise.run.recipe import Preview, Recipe, find_config, find_recipe, list_configs
from groupwise.run.running import check_recipe, list_changed_settings, run_recipe

pytestmark = pytest.mark.usefixtures("tiny")


def load(*settings: str) -> Config:
    recipe = find_recipe("tiny")
    return load_config(recipe.load_config_type(), find_config(recipe), overrides=settings)


def test_an_installed_package_brings_a_recipe(tiny):
    recipe = find_recipe("tiny")
    assert (recipe.name, list_configs(recipe)) == ("tiny", ["demo"])
    assert find_config(recipe) == find_config(recipe, "demo") == tiny.site / "configs/demo.yaml"
    (tiny.work / "mine.yaml").write_text("source: source.txt\nseed: 7\n")
    assert find_config(recipe, "mine.yaml") == Path("mine.yaml")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_module\n", r"recipe tiny cannot be imported.*no_such_module"),
        ("recipe = 3\n", "not a recipe; got int"),
    ],
)
def test_what_is_no_recipe_is_refused(tiny, code: str, message: str):
    (tiny.site / "tiny_recipe.py").write_text(code)
    with pytest.raises(ConfigError, match=message):
        find_recipe("tiny")


def test_a_recipe_without_a_seed_is_a_bug():
    recipe = Recipe("x", "", Config, Path(), lambda c, r: [], lambda c: Preview())
    with pytest.raises(ValueError, match="seed"):
        recipe.load_config_type()


def test_a_config_type_can_be_imported_when_it_is_needed():
    recipe = find_recipe("tiny")
    named = replace(recipe, config_type="tiny_recipe:TinyConfig")
    assert named.load_config_type() is recipe.load_config_type()


def test_run_writes_the_manifest_first_and_then_the_steps(tiny):
    with pytest.raises(AssertionError, match="a bug"):
        run_recipe(find_recipe("tiny"), load("writer.fail=bug", "seed=5"), out=Path("out"))
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert (manifest["recipe"], manifest["seed"]) == ("tiny", 5)
    assert manifest["config"]["writer"]["rows"] == 3
    assert list(manifest["inputs"]) == ["source"]
    run_recipe(find_recipe("tiny"), load("seed=5"), out=Path("out"), is_resume=True)
    assert tiny.list_done() == ["prepare", "audit", "write", "write resumed", "evaluate", "report"]
    assert len(Path("out/history.jsonl").read_text().splitlines()) == 2


def test_changed_input_file_is_noticed(tiny):
    run_recipe(find_recipe("tiny"), load(), out=Path("out"))
    tiny.list_done()
    tiny.source.write_text("hello \n")
    run_recipe(find_recipe("tiny"), load(), out=Path("out"))
    assert tiny.list_done() == ["prepare", "report"]
    tiny.source.write_text("other\n")
    run_recipe(find_recipe("tiny"), load(), out=Path("out"))
    assert tiny.list_done() == ["prepare", "audit", "write", "report"]


def test_check_tells_the_facts_and_all_problems():
    recipe = find_recipe("tiny")
    preview = check_recipe(recipe, load(), out=Path("out"))
    (stages,) = preview.tables
    assert (preview.facts, preview.problems) == ([("rows", "3")], [])
    assert [row[0] for row in stages.rows] == ["prepare", "audit", "write", "evaluate", "report"]
    preview = check_recipe(recipe, load("source=gone.txt"), out=Path("out"), is_resume=True)
    assert len(preview.problems) == 2
    assert not Path("out").exists()


def test_check_tells_which_stages_are_reused_and_which_are_redone():
    recipe, out = find_recipe("tiny"), Path("out")
    run_recipe(recipe, load(), out=out, until="write")

    def list_states(*overrides: str) -> list[str]:
        (stages,) = check_recipe(recipe, load(*overrides), out=out).tables
        return [state for _, _, state in stages.rows]

    assert list_states() == ["reused", "reused", "reused", "run", "run"]
    assert list_states("writer.rows=7") == ["reused", "reused", "run", "run", "run"]
    (out / "write" / "step.json").rename(out / "write" / "gone.json")
    marker = json.loads((out / "write" / "gone.json").read_text())
    (out / "write" / "started.json").write_text(json.dumps({"key": marker["key"]}))
    assert list_states() == ["reused", "reused", "continued", "run", "run"]


LATER = Preview([("rows", "3")], [], later={"write": ["too long"], "evaluate": ["too few"]})


@pytest.mark.parametrize(
    ("until", "stops", "told"),
    [
        ("audit", [], [("later, in write", "too long"), ("later, in evaluate", "too few")]),
        ("write", ["too long"], [("later, in evaluate", "too few")]),
        (None, ["too long", "too few"], []),
    ],
)
def test_what_is_wrong_with_a_step_stops_runs_that_reach_it(
    until: str | None, stops: list[str], told: list[tuple[str, str]]
):
    recipe = replace(find_recipe("tiny"), preview=lambda _: LATER)
    preview = check_recipe(recipe, load(), out=Path("out"), until=until)
    assert preview.problems == stops
    assert preview.facts[1:] == told
    if not stops:
        assert len(run_recipe(recipe, load(), out=Path("out"), until=until)) == 2
        return
    with pytest.raises(ConfigError, match=r"\n  ".join(["cannot start:", *stops]) + "$"):
        run_recipe(recipe, load(), out=Path("out"), until=until)
    assert not Path("out").exists()


def test_with_something_else_wrong_all_is_told():
    recipe = replace(find_recipe("tiny"), preview=lambda _: replace(LATER, problems=["no source"]))
    preview = check_recipe(recipe, load(), out=Path("out"), until="prepare")
    assert preview.problems == ["no source", "too long", "too few"]


def test_changed_settings_are_listed_by_key():
    assert list_changed_settings(load(), out=Path("out")) == []
    run_recipe(find_recipe("tiny"), load(), out=Path("out"), until="prepare")
    assert list_changed_settings(load(), out=Path("out")) == []
    changed = list_changed_settings(load("seed=1", "writer.rows=4"), out=Path("out"))
    assert changed == ["seed", "writer.rows"]
