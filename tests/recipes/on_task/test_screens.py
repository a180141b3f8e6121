"""Splits of on_task: nothing of one side stands on another, and totals add up."""

import json
import os
import shutil
from pathlib import Path

import pytest
from scenes import copy_scene, draw_scene

from groupwise.core import ConfigError, DataError, load_config, read_jsonl, write_jsonl
from groupwise.data import read_examples
from groupwise.pipeline import StepContext, find_recipe
from groupwise.serving import Request
from groupwise_drawn.desktops import write_desktops
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.screens import prepare_screens, read_warmup

CONFIGS = find_recipe("on_task").config_folder
REAL = Path(os.environ.get("GROUPWISE_DATA", "../shared/data")) / "screenagent"


def load(root: Path, *overrides: str) -> OnTaskConfig:
    settings = [f"data.root={root}", "data.drawn.num_sessions=0", *overrides]
    return load_config(OnTaskConfig, CONFIGS / "screenagent-tiny.yaml", overrides=settings)


def test_picture_of_two_sessions_stays_on_one_side_and_is_counted(tmp_path: Path) -> None:
    root = tmp_path / "screens"
    index = write_desktops(
        root, num_sessions=30, screens_per_session=1, seed=3, size=(160, 120), languages=("en",)
    )
    rows = [row | {"fold": number % 2} for number, row in enumerate(read_jsonl(index))]
    write_jsonl(index, rows)
    shutil.copy(root / rows[0]["image"], root / rows[1]["image"])  # folds 0 and 1
    config = load(root, "data.train_folds=[0]", "data.test_folds=[1]", "data.validation_share=0.2")
    folder = tmp_path / "prepare"
    prepare_screens(config, folder)
    pictures = {
        name: {p.digest for e in read_examples(folder / f"{name}.jsonl") for p in e.pictures}
        for name in ("train", "validation", "test")
    }
    assert len(set.union(*pictures.values())) == sum(len(p) for p in pictures.values()) == 29
    source = json.loads((folder / "source.json").read_text())
    assert source["drops"]["counts"] == {"picture of another split": 1}
    assert source["num_rows"] == 30


def write_scenes(root: Path, *, num_sessions: int, copied: int) -> list[str]:
    """Write a screen a session, and for the first ones a copy in a session of its own."""
    paths = [draw_scene(root / f"{n}.png", n) for n in range(num_sessions)]
    copies = [copy_scene(path, root / f"copy-{path.stem}.jpg") for path in paths[:copied]]
    rows = [
        {
            "image": path.name,
            "task": f"task {number % 3}",
            "activity": f"activity {number % 3}",
            "session": f"s{number}",
        }
        for number, path in enumerate([*paths, *copies])
    ]
    write_jsonl(root / "index.jsonl", rows)
    return [path.stem for path in paths[:copied]]


def list_sides(folder: Path) -> dict[str, set[str]]:
    """Return the sessions of each split."""
    splits = {
        name: {example.cluster for example in read_examples(folder / f"{name}.jsonl")}
        for name in ("train", "validation", "test")
    }
    return {**splits, "warmup": {screen.session for screen in read_warmup(folder)}}


def test_near_duplicates_are_dropped_from_what_trains_and_counted(tmp_path: Path) -> None:
    write_scenes(tmp_path / "screens", num_sessions=16, copied=8)
    shares = ("data.test_share=0.4", "data.validation_share=0.1", "data.warmup_share=0.2")
    folds = ("data.train_folds=null", "data.test_folds=null")
    settings = load(tmp_path / "screens", *folds, *shares, "data.near_duplicates=drop")
    prepare_screens(settings, tmp_path / "prepare")
    source = json.loads((tmp_path / "prepare/source.json").read_text())
    num_dropped = source["drops"]["counts"]["near duplicate of another split"]
    sides = list_sides(tmp_path / "prepare")
    assert num_dropped > 0
    assert sum(map(len, sides.values())) + num_dropped == source["num_rows"] == 24
    assert len(sides["test"]) == 10


def test_sessions_that_look_alike_are_joined(tmp_path: Path) -> None:
    write_scenes(tmp_path / "screens", num_sessions=38, copied=2)
    folds = ("data.train_folds=null", "data.test_folds=null", "data.warmup_share=0.2")
    settings = load(tmp_path / "screens", *folds, "data.near_duplicates=join")
    prepare_screens(settings, tmp_path / "prepare")
    sides = list_sides(tmp_path / "prepare")
    everywhere = [session for sessions in sides.values() for session in sessions]
    assert len(everywhere) == len(set(everywhere)) == 38


def test_joining_against_fixed_folds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="join needs a split by shares"):
        load(tmp_path, "data.near_duplicates=join")


@pytest.mark.parametrize("joins", [False, True])
def test_real_screens_are_joined_by_drawn_ones_only_if_asked_for(
    tmp_path: Path, joins: bool
) -> None:
    root = tmp_path / "screens"
    size = {"screens_per_session": 1, "size": (160, 120)}
    write_desktops(root, num_sessions=30, seed=3, activities=("coding", "video"), **size)
    words = [
        *("data.train_folds=null", "data.test_folds=null", "data.warmup_share=0.2"),
        "data.drawn.num_sessions=4",
        f"data.drawn.join_real={joins}",
    ]
    prepare_screens(load(root, *words), tmp_path)
    sources = json.loads((tmp_path / "source.json").read_text())["sources"]
    num_drawn = 4 if joins else 0
    assert sources["warmup"] == {"captured": 6} | ({"drawn": 4} if joins else {})
    assert all(set(counts) == {"captured"} for name, counts in sources.items() if name != "warmup")
    rows = read_jsonl(tmp_path / "warmup.jsonl")
    assert sum(row["source"] == "drawn" for row in rows) == num_drawn
    assert (tmp_path / "drawn").is_dir() == joins


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason=f"the real screenshots are not at {REAL}")
def test_folds_of_real_screenshots_share_no_session(tmp_path: Path) -> None:
    prepare_screens(load(REAL), tmp_path)
    groups = {
        name: {e.cluster for e in read_examples(tmp_path / f"{name}.jsonl")}
        for name in ("train", "validation", "test")
    }
    assert not groups["test"] & (groups["train"] | groups["validation"])
    assert not groups["train"] & groups["validation"]
    assert len(groups["test"]) == 37


def test_only_a_label_that_a_person_gave_is_a_persons(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_desktops(root, num_sessions=60, screens_per_session=1, seed=0, size=(224, 168))
    rows = read_jsonl(root / "index.jsonl")
    for number, row in enumerate(rows):
        row["source"] = ("human_feedback", "captured")[number % 2]
        row["label"] = ("on-task", "off-task", None)[number % 3]
    write_jsonl(root / "index.jsonl", rows)
    config = load(root, "data.train_folds=null", "data.test_folds=null", "data.pairs_per_screen=1")
    prepare_screens(config, tmp_path / "prepare")
    found = read_examples(tmp_path / "prepare" / "train.jsonl")
    given = {row["task"]: row["label"] for row in rows if row["source"] == "human_feedback"}
    corrected = [one for one in found if "human_label" in one.fields]
    assert corrected
    for example in corrected:
        assert given[example.fields["task"]] == example.label == example.fields["human_label"]


def test_labelled_screens_of_another_folder_are_asked_as_those_of_the_run(tmp_path: Path) -> None:
    root = tmp_path / "screens"
    write_scenes(root, num_sessions=6, copied=0)
    rows = read_jsonl(root / "index.jsonl")
    labels = ["on-task", "off-task", "on-task", None, "maybe", "off-task"]
    labelled = [row | {"label": label} for row, label in zip(rows, labels, strict=True)]
    write_jsonl(root / "index.jsonl", [*labelled, labelled[0]])
    config, task = load(root), find_recipe("on_task").task()
    context = StepContext(tmp_path, tmp_path, "evaluate", False, ())
    found, drops = task.read_labelled(config, context, root, tmp_path / "data")
    assert sorted(str(one.label) for one in found) == ["off-task"] * 2 + ["on-task"] * 2
    assert drops.counts == {
        "label outside the set": 1,
        "no label": 1,
        "repeats another row": 1,
    }
    asked = task.make_question(
        config,
        Request("1", {"task": rows[1]["task"]}, (root / rows[1]["image"],)),
        tmp_path / "asked",
    )
    prompts = [[(turn.role, turn.text) for turn in one.prompt] for one in found]
    place = prompts.index([(turn.role, turn.text) for turn in asked.prompt])
    digests = {p.digest for one in found for p in one.pictures}
    assert {p.digest for p in asked.pictures} <= digests
    assert found[place].label is not None
    write_jsonl(root / "index.jsonl", rows)
    with pytest.raises(DataError, match="has no labelled screen"):
        task.read_labelled(config, context, root, tmp_path / "data")
