"""SpatialSense and Rel3D, on small made files of the published form."""

from pathlib import Path
from typing import Any

import pytest

from groupwise.core import DataError, write_json
from groupwise.rewards import Box
from groupwise_recipes.visual_reasoning.sources import load_rel3d, load_spatialsense


def relation(name: str, label: Any = True, **values: Any) -> dict[str, Any]:
    told = {
        "_id": name,
        "predicate": "on",
        "subject": {"name": "cat", "x": 157, "y": 317, "bbox": [230, 434, 31, 264]},
        "object": {"name": "ground", "x": 148, "y": 402, "bbox": [196, 500, 3, 278]},
        "label": label,
    }
    return {**told, **values}


def picture(*relations: dict[str, Any], **values: Any) -> dict[str, Any]:
    told = {"url": "https://farm4.staticflickr.com/3543/57.jpg", "nsid": "1@N03", "split": "train"}
    return {**told, "height": 500, "width": 281, "annotations": [*relations], **values}


def test_boxes_of_spatialsense_are_turned(tmp_path: Path):
    path = tmp_path / "annotations.json"
    write_json(path, [picture(relation("a"), relation("b", label=False, predicate="under"))])
    first, second = load_spatialsense(path).rows
    assert first.boxes == (Box(31, 230, 264, 434, "cat"), Box(3, 196, 278, 500, "ground"))
    assert first.picture_size == (281, 500)
    assert (first.text, first.answer, first.relation) == ("cat on ground", "True", "on")
    assert (second.text, second.answer) == ("cat under ground", "False")
    assert first.cluster == second.cluster
    assert first.picture is None


def test_spatialsense_keeps_its_split_and_drops_by_reason(tmp_path: Path):
    path = tmp_path / "annotations.json"
    flat = {"name": "cat", "bbox": [230, 434, 31, 31]}
    far = {"name": "cat", "bbox": [230, 434, 31, 300]}
    nyu = {"url": "nyu_depth/12.jpg", "split": "valid"}
    told = [
        picture(relation("a"), relation("flat", subject=flat), relation("far", subject=far)),
        picture(relation("b"), relation("no", label="yes"), **nyu),
        picture(relation("c"), relation("a"), split="test"),
        picture(relation("d"), split="other"),
        {"url": "nothing"},
    ]
    write_json(path, told)
    loaded = load_spatialsense(path)
    assert [(row.id, row.split) for row in loaded.rows] == [
        ("a", "train"),
        ("b", "validation"),
        ("c", "test"),
    ]
    assert loaded.drops.counts == {
        "not of the published form": 3,
        "box outside of the picture": 1,
        "box without an area": 1,
        "repeated id": 1,
    }
    assert loaded.num_records == len(loaded.rows) + loaded.drops.total
    for name in ("flickr/57.jpg", "nyu/12.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    shown = load_spatialsense(path, pictures=tmp_path).rows
    assert [row.picture for row in shown[:2]] == [
        tmp_path / "flickr" / "57.jpg",
        tmp_path / "nyu" / "12.jpg",
    ]


def scene(state: str, camera: str, label: bool, thing: str = "Bike_9a") -> dict[str, Any]:
    name = f"data/20200223/behind - Wheel_wheel_3 - {thing} - {state} {camera}"
    return {
        "rgb": f"{name} rgb.png",
        "depth": f"{name} depth.tiff",
        "width": 1280,
        "height": 720,
        "subject": {
            "name": "Wheel ",
            "bbox": {"top": "10", "left": 20, "height": 30, "width": 40},
        },
        "object": {"name": "Bike", "bbox": {"top": 1, "left": 2, "height": 3, "width": 4}},
        "predicate": "behind",
        "label": label,
        "transform_vector": {"raw_absolute": [0.5]},
    }


def test_pairs_of_rel3d_share_relation_things_and_camera(tmp_path: Path):
    path = tmp_path / "c_0.9_c_0.1.json"
    train = [
        scene("initialState", "cam10", True),
        scene("initialState", "cam2", True),
        scene("finalState", "cam10", False),
        scene("initialState", "cam2", True, thing="Car_1"),
        scene("finalState", "cam2", True, thing="Car_1"),
    ]
    test = [scene("finalState2", "cam2", False)]
    write_json(path, {"train": train, "valid": [], "test": test, "predicates": ["behind"]})
    rows = load_rel3d(path).rows
    assert [row.partner for row in rows] == [rows[2].id, None, rows[0].id, None, None, None]
    assert {row.cluster for row in rows[:3]} == {"behind - Wheel_wheel_3 - Bike_9a"}
    assert rows[0].boxes == (Box(20, 10, 60, 40, "Wheel"), Box(2, 1, 6, 4, "Bike"))
    assert (rows[0].text, rows[0].relation) == ("Wheel behind Bike", "behind")
    assert [row.split for row in rows] == ["train"] * 5 + ["test"]


def test_depth_of_rel3d_is_a_picture_of_its_own(tmp_path: Path):
    path = tmp_path / "c_0.9_c_0.1.json"
    both = [scene("initialState", "cam1", True), scene("finalState", "cam1", False)]
    write_json(path, {"train": [*both, {"rgb": 1}], "valid": [], "test": []})
    for one in both:
        (tmp_path / Path(one["rgb"]).name).touch()
    (tmp_path / Path(both[0]["depth"]).name).touch()
    loaded = load_rel3d(path, pictures=tmp_path)
    (row,) = loaded.rows
    assert row.depth == tmp_path / Path(both[0]["depth"]).name
    assert row.picture == tmp_path / row.id
    assert row.partner is None
    assert loaded.drops.counts == {"missing picture": 1, "not of the published form": 1}


def test_a_name_that_tells_no_scene_is_dropped(tmp_path: Path):
    path = tmp_path / "rel3d.json"
    write_json(
        path, {"train": [{**scene("a", "b", True), "rgb": "1.png"}], "valid": [], "test": []}
    )
    with pytest.raises(DataError, match=r"\{'picture of no scene': 1\}"):
        load_rel3d(path)
    write_json(path, {"train": []})
    with pytest.raises(DataError, match="is not Rel3D's file; expected a list 'test'"):
        load_rel3d(path)
