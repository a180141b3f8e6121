"""What is checked before a sweep begins: every cell, and the folder."""

from pathlib import Path

import pytest

from groupwise.core import ConfigError, write_json
from groupwise.pipeline import find_config, find_recipe
from groupwise.pipeline.sweep import SweepPlan, plan_recorded, plan_sweep

pytestmark = pytest.mark.usefixtures("tiny")


def plan(*grids: str, out: str = "grid", **options: list[str]) -> SweepPlan:
    recipe = find_recipe("tiny")
    return plan_sweep(recipe, find_config(recipe), grids, out=Path(out), **options)


def test_cells_have_their_configs_and_know_what_they_share():
    found = plan("factor=2,3", "seed=1,2", settings=["writer.rows=7"])
    values = [(c.config.model_dump()["factor"], c.config.model_dump()["seed"]) for c in found.cells]
    assert values == [(2, 1), (2, 2), (3, 1), (3, 2)]
    assert {c.config.model_dump()["writer"]["rows"] for c in found.cells} == {7}
    first, second, third, _ = (cell.work for cell in found.cells)
    assert first == second
    assert {step for step in first if first[step] != third[step]} == {"write", "evaluate", "report"}
    counts = {"prepare": 1, "audit": 1, "write": 2, "evaluate": 2, "report": 2}
    assert found.count_work() == counts


@pytest.mark.parametrize(
    ("grids", "options", "words"),
    [
        (["faktor=1"], {}, ["1 problem", "faktor: unknown key; did you mean 'factor'?"]),
        (["factor=1,1"], {}, ["1 problem", "the value 1 appears twice"]),
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
    write_json(found.folder / "sweep.json", found.record)
    again = plan_recorded(find_recipe("tiny"), found.folder)
    assert again.record == found.record
    with pytest.raises(ConfigError, match="holds a sweep of tiny, not of on_task"):
        plan_recorded(find_recipe("on_task"), found.folder)


def test_a_config_file_that_was_edited_is_another_sweep():
    found = plan("factor=2,3")
    write_json(found.folder / "sweep.json", found.record)
    config = find_config(find_recipe("tiny"))
    config.write_text(config.read_text() + "audit_errors: 2\n")
    with pytest.raises(ConfigError, match="audit_errors was 0 and is 2"):
        plan("factor=2,3,4")


def test_a_cell_is_found_by_its_name_or_its_coordinates():
    found = plan("writer.wait_s=0.1,1e-5", "factor=2,3")
    third = found.cells[2]
    for name in (third.name, "factor=2, writer.wait_s=0.00001"):
        assert found.find_cell(name) is third
    with pytest.raises(ConfigError, match=r"did you mean 'writer.wait_s=1e-05,factor=."):
        found.find_cell("writer.wait_s=1e-5")
