"""What a plan and a dry run of demo_selection say of the data, without a run."""

from pathlib import Path

import pytest
from plan_keys import list_changed, plan, read_keys, write_base
from recorded_lists import make_entry, make_pointer
from vqa_files import write_questions

from groupwise.core import ConfigError, load_config, write_json
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


def test_an_answerer_that_nobody_names_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"give model\.base, or the server of an answerer"):
        load(("model={}",), "demo")


def write_recorded(path: Path, *, answer: str) -> None:
    pool = list(range(8))
    pointers = [make_pointer([0, 1], answer), make_pointer([1, 0], "blue")]
    write_json(path, {str(n): make_entry(n, pointers, pool) for n in range(20, 24)})


def test_a_dry_run_reads_the_lists_that_were_recorded(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "lists.json"
    write_recorded(path, answer="net")
    given = (*settings, f"data.recorded={path}", "record_again=false")
    preview = preview_run(load(given))
    assert preview.problems == []
    assert dict(preview.facts)["recorded lists"] == "8 of 4 queries in lists.json"
    assert "prompts to record" not in dict(preview.facts)
    write_recorded(path, answer="blue")
    [problem] = preview_run(load(given)).problems
    assert "lists.json: only 0/4 (0.0%) queries have a positive list" in problem
    with pytest.raises(ConfigError, match=r"record_again: data\.recorded is what"):
        load(given[:-1])
    with pytest.raises(ConfigError, match=r"data\.recorded_pools are of data\.recorded"):
        load((*settings, "data.recorded_pools=pools.json"))


def test_given_weights_and_lists_change_what_is_made_of_them(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    path, weights = tmp_path / "lists.json", tmp_path / "selector.safetensors"
    write_recorded(path, answer="net")
    weights.write_bytes(b"one")
    given = (
        *settings,
        f"data.recorded={path}",
        "record_again=false",
        f"rce.weights={weights}",
    )
    before = read_keys(plan("demo_selection", tmp_path / "run", "qwen2.5-vl-3b", *given))
    weights.write_bytes(b"two")
    after = read_keys(plan("demo_selection", tmp_path / "run", "qwen2.5-vl-3b", *given))
    assert list_changed(before, after) == {"rce", "evaluate"}
    write_recorded(path, answer="a")
    last = read_keys(plan("demo_selection", tmp_path / "run", "qwen2.5-vl-3b", *given))
    assert {"prepare", "candidates"} <= list_changed(after, last)
