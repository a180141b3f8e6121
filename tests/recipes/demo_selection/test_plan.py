"""What a plan and a dry run of demo_selection say of the data, without a run."""

from pathlib import Path

import pytest
from plan_keys import list_changed, plan, read_keys, write_base
from vqa_files import write_questions

from groupwise.core import load_config
from groupwise.pipeline import find_config, find_recipe
from groupwise_recipes.demo_selection.config import DemoSelectionConfig
from groupwise_recipes.demo_selection.evaluate_stage import list_run_cells
from groupwise_recipes.demo_selection.preview import preview_run


@pytest.fixture
def settings(tmp_path: Path) -> tuple[str, ...]:
    """Of a run on files of the published form, whose answerer is served."""
    train = write_questions(tmp_path / "train", "train2014", 12)
    test = write_questions(tmp_path / "test", "val2014", 8, first=1000)
    return (
        *(f"data.vqa.train.{name}={path}" for name, path in train.items()),
        *(f"data.vqa.test.{name}={path}" for name, path in test.items()),
        "data.vqa.num_anchors=6",
        "data.vqa.num_validation=3",
        "data.vqa.num_test=5",
        "evaluation.sizes=[2, 5]",
        "server={url: 'http://127.0.0.1:9/v1', model: m}",
        "pools.size=8",
        f"features.base={write_base(tmp_path / 'clip')}",
    )


def load(settings: tuple[str, ...], config: str = "qwen2.5-vl-3b") -> DemoSelectionConfig:
    path = find_config(find_recipe("demo_selection"), config)
    return load_config(DemoSelectionConfig, path, overrides=settings)


def test_a_changed_picture_changes_what_is_made_of_it(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    before = read_keys(plan("demo_selection", tmp_path / "run", "qwen2.5-vl-3b", *settings))
    picture = next((tmp_path / "test").rglob("*.jpg"))
    picture.write_bytes(picture.read_bytes() + b" ")
    after = read_keys(plan("demo_selection", tmp_path / "run", "qwen2.5-vl-3b", *settings))
    assert list_changed(before, after) == {"prepare"}


def test_items_are_counted_without_reading_a_picture(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    for picture in tmp_path.rglob("*.jpg"):
        picture.write_bytes(b"no picture")
    [items] = preview_run(load(settings)).tables
    assert items.rows == [("train", "12"), ("anchors", "6"), ("validation", "3"), ("test", "5")]


@pytest.mark.parametrize("every_epoch", [False, True])
@pytest.mark.parametrize("shots", ["[1, 2]", "[1]"])
def test_the_cells_that_are_announced_are_those_of_the_run(every_epoch: bool, shots: str) -> None:
    config = load((f"evaluation.every_epoch={every_epoch}", f"evaluation.shots={shots}"), "demo")
    found = dict(preview_run(config).facts)["prompts to evaluate"]
    num_cells = len(list_run_cells(config))
    assert found == f"at most {num_cells * 400:,} in {num_cells} cells"
