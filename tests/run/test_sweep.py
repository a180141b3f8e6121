"""What is checked before a sweep begins: every cell, and the folder."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import core
from groupwise.core import ConfigError, GroupwiseError
from groupwise.run.recipe import find_config, find_recipe
from groupwise.run.sweep import (
    Axis,
    SweepPlan,
    list_coordinates,
    name_cell,
    parse_axes,
    plan_recorded,
    plan_sweep,
    read_sweep,
)

pytestmark = pytest.mark.usefixtures("tiny")


def plan(*grids: str, out: str = "grid", **options: list[str]) -> SweepPlan:
    recipe = find_recipe("tiny")
    return plan_sweep(recipe, find_config(recipe), grids, out=Path(out), **options)


def test_cells_have_their_configs_and_know_what_they_share():
    found = plan("factor=2,3", "seed=1,2", settings=["writer.rows=7"])
    values = [(c.config.model_dump()["factor"], c.config.model_dump()["seed"]) for c in found.cells]
    assert values == [(2, 1), (2, 2), (3, 1), (3, 2)]
    assert {c.config.model_dump()["writer"]["rows"] for c in found.cells} == {7}
    assert found.cells[0].work == found.cells[1].work != found.cells[2].work


@pytest.mark.parametrize(
    ("grids", "options", "words"),
    [
        (["faktor=1"], {}, ["1 problem", "faktor: unknown key; did you mean 'factor'?"]),
        (["factor=1,2"], {"settings": ["factor=3"]}, ["1 problem", "it is in --set, too"]),
        (["factor=1,many,more"], {}, ["2 problem", "got 'many'", "got 'more'"]),
        (["source.a=1"], {}, ["1 problem", "cannot apply --grid source.a=1"]),
        (["factor=1"], {"settings": ["source.a=1"]}, ["cannot apply --set source.a=1"]),
        (["factor=1"], {"settings": ["source=gone.txt"]}, ["  source: gone.txt does not exist\n"]),
        (
            ["source=source.txt,gone.txt", "factor=1,2"],
            {},
            ["1 problem", "not exist (source=gone.txt,factor=1 and 1 more cell)"],
        ),
        (["source=source.txt,gone.txt"], {}, ["not exist (source=gone.txt)"]),
        (["writer.wait_s=1,1.0"], {}, ["writer.wait_s=1 and writer.wait_s=1.0 have the same"]),
        (["factor=1"], {"accepted": ["reward/x"]}, ["1 problem", "has no rewards"]),
        (
            ["factor=1,x", "writer.rows=", "sed=1"],
            {"settings": ["z=1"]},
            ["4 problem", "writer.rows: a value is empty", "'x'", "did you mean 'seed'", "z: un"],
        ),
    ],
)
def test_all_mistakes_are_told_at_once(grids, options, words: list[str]):
    with pytest.raises(ConfigError) as caught:
        plan(*grids, **options)
    for word in words:
        assert word in f"{caught.value}\n"
    assert not Path("grid").exists()


def test_folders_of_something_else_are_refused():
    for out, words in ((".", "has files but holds no sweep"), ("source.txt", "is not a folder")):
        with pytest.raises(ConfigError, match=words):
            plan("factor=1", out=out)


def test_a_recorded_sweep_is_planned_without_its_grid():
    found = plan("factor=2,3", settings=["writer.rows=7"])
    core.write_json(found.folder / "sweep.json", found.record)
    again = plan_recorded(find_recipe("tiny"), found.folder)
    assert again.record == found.record
    with pytest.raises(ConfigError, match="holds a sweep of tiny, not of on_task"):
        plan_recorded(find_recipe("on_task"), found.folder)


def test_a_config_file_that_was_edited_is_another_sweep():
    found = plan("factor=2,3")
    core.write_json(found.folder / "sweep.json", found.record)
    config = find_config(find_recipe("tiny"))
    config.write_text(config.read_text() + "audit_errors: 2\n")
    with pytest.raises(ConfigError, match="audit_errors was 0 and is 2"):
        plan("factor=2,3,4")


CONFIG = {"a": 1}
CELL = {"name": "a=1", "folder": "cells/a=1", "config_digest": core.digest_json(CONFIG)}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    cell = CELL | {"coordinates": {"a": "1"}, "config": CONFIG}
    axes = [{"key": "a", "values": ["1"]}]
    core.write_json(
        tmp_path / "sweep.json", {"format": 1, "recipe": "tiny", "axes": axes, "cells": [cell]}
    )
    return tmp_path


def read_state(sweep: Path) -> tuple[str, str]:
    (cell,) = read_sweep(sweep).cells
    return cell.state, cell.error


def start(sweep: Path, config: object = CONFIG, *, done: tuple[str, ...] = ()) -> Path:
    """Write what a run with two steps leaves that has done some of them."""
    run = sweep / "cells" / "a=1"
    manifest = {"config_digest": core.digest_json(config), "plan": {"first": {}, "last": {}}}  # type: ignore[arg-type]
    core.write_json(run / "manifest.json", manifest)
    for step in done:
        core.write_json(run / step / "step.json", {})
    return run


def test_a_cell_that_never_ran_is_waiting(sweep: Path):
    found = read_sweep(sweep)
    assert found.axes == (Axis("a", ("1",)),)
    assert found.cells[0].coordinates == {"a": "1"}
    assert found.cells[0].folder == sweep / "cells" / "a=1"
    assert read_state(sweep) == ("waiting", "")


def test_done_needs_the_whole_run_with_its_config(sweep: Path):
    start(sweep, done=("first",))
    assert read_state(sweep) == ("waiting", "")
    start(sweep, done=("first", "last"))
    assert read_state(sweep) == ("done", "")
    start(sweep, {"a": 2}, done=("first", "last"))
    assert read_state(sweep) == ("waiting", "its folder no longer holds the run that was done")


def test_a_failed_cell_says_how_until_it_runs_again(sweep: Path):
    run = start(sweep, done=("first",))
    (sweep / "failed").mkdir()
    core.write_text(sweep / "failed" / "a=1.txt", "exit code 2")
    assert read_state(sweep) == ("failed", "exit code 2")
    with core.RunFolder(run).lock():
        assert read_state(sweep) == ("running", "")


def test_a_cell_runs_while_a_process_holds_its_folder(sweep: Path):
    run = start(sweep, done=("first", "last"))
    with core.RunFolder(run).lock():
        assert read_state(sweep) == ("running", "")
    assert read_state(sweep) == ("done", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "holds no sweep"),
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"format": 9}', "format"),
    ],
)
def test_no_sweep_or_a_damaged_one_is_told(tmp_path: Path, text: str | None, words: str):
    if text is not None:
        core.write_text(tmp_path / "sweep.json", text)
    with pytest.raises(GroupwiseError, match=words):
        read_sweep(tmp_path)


_TEXT = st.text(st.characters(max_codepoint=0xD7FF), max_size=5)


def read(text: str) -> tuple[str, ...]:
    (axis,), problems = parse_axes([text])
    assert problems == []
    return axis.values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1,2,3", ("1", "2", "3")),
        ("a.b= 0.10 , 1e-5", ("0.1", "1e-05")),
        ("a=on-task,任务", ("on-task", "任务")),
        ("a=[1, 2],[3],null", ("[1, 2]", "[3]", "null")),
        ("a={b: [1,2], c: 3},true", ('{"b": [1, 2], "c": 3}', "true")),
        ("a=\"x,y\",'1'", ("x,y", '"1"')),
        ("a=it's,b's", ("it's", "b's")),
        ("a=['x,y',z],'it''s, too'", ('["x,y", "z"]', "it's, too")),
        ("a=.inf,2024-01-01", (".inf", "2024-01-01")),
        ("a=x=y,z", ("x=y", "z")),
        (r"a=http://x/y?z=1,x[0-9].csv,\boxed{a}", ("http://x/y?z=1", "x[0-9].csv", r"\boxed{a}")),
    ],
)
def test_values_are_yaml_cut_at_the_outer_commas(text: str, values: tuple[str, ...]):
    assert read(text) == values


@given(
    st.lists(
        st.one_of(st.integers(), st.booleans(), st.none(), _TEXT, st.floats(0, 1)),
        min_size=1,
        max_size=4,
        unique_by=repr,
    )
)
def test_a_coordinate_reads_as_the_value_that_was_typed(values: list[object]):
    typed = ",".join(json.dumps(value) for value in values)
    assert [core.parse_yaml(text) for text in read(f"a={typed}")] == values


@pytest.mark.parametrize(
    ("grids", "settings", "words"),
    [
        (["a"], [], "expected key.path=value"),
        (["=1"], [], "expected key.path=value"),
        (["a..b=1"], [], "expected key.path=value"),
        (["a=1,,2"], [], "a value is empty"),
        (["a="], [], "a value is empty"),
        (["a=1,"], [], "a value is empty"),
        (["a=1,2,1"], [], "the value 1 appears twice"),
        (["a=0.1,0.10"], [], "the value 0.1 appears twice"),
        (["a=[1"], [], "or no YAML; got"),
        (["a=1", "a=2"], [], "another axis"),
        (["a.b=1", "a={b: 2}"], [], "another axis"),
        (["a=1"], ["a=2"], "it is in --set, too"),
        (["a.b=1"], ["a={b: 2}"], "it is in --set, too"),
    ],
)
def test_mistakes_are_told(grids: list[str], settings: list[str], words: str):
    _, (problem,) = parse_axes(grids, settings=settings)
    assert words in problem


def test_a_grid_that_no_sweep_could_hold_is_refused():
    axes = [Axis(key, tuple(map(str, range(5000)))) for key in "ab"]
    with pytest.raises(ConfigError, match="got 25000000 cells; expected at most 10000"):
        list_coordinates(axes)


def test_keys_that_only_look_alike_are_fine():
    assert parse_axes(["a.b=1", "a.bc=1"], settings=["a.c=1"])[1] == []


def test_the_last_axis_varies_fastest():
    cells = list_coordinates([Axis("a", ("1", "2")), Axis("b", ("x", "y"))])
    assert [cell["a"] + cell["b"] for cell in cells] == ["1x", "1y", "2x", "2y"]


class TestNames:
    def test_plain_ones_say_all(self):
        name = name_cell({"grpo.beta": "0.12", "seed": "3", "label": "任务"})
        assert name == "grpo.beta=0.12,seed=3,label=任务"

    @given(st.dictionaries(st.text("ab", min_size=1, max_size=3), st.text(max_size=200)))
    def test_any_is_a_safe_name_of_a_folder(self, coordinates: dict[str, str]):
        name = name_cell(coordinates)
        assert len(name.encode()) <= 130
        assert not set(name) & set("/\\\0\n :*?\"<>|'")

    def test_long_and_unsafe_ones_stay_apart(self):
        one, other = ({"a": "x" * 300 + end} for end in "yz")
        assert name_cell(one) != name_cell(other)
        assert name_cell({"a": "b/c"}) != name_cell({"a": "b:c"})
