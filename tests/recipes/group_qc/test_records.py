"""Photo groups from Stage A's files: what is used, what is dropped and why."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from group_words import QUESTIONS, WORDS
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError
from groupwise_recipes.group_qc.photos import LoadedGroups
from groupwise_recipes.group_qc.records import load_records

MISSION = "BBU接地线检查"


def make_record(name: str = "a", **changes: object) -> dict[str, Any]:
    folder = f"{MISSION}/审核通过/{name}"
    return {
        "group_id": name,
        "mission": MISSION,
        "label": "pass",
        "images": [f"{folder}/1.jpg", f"{folder}/2.jpg"],
        "per_image": {"图片_1": "接地线×1", "图片_2": "无关图片"},
        **changes,
    }


def load(folder: Path, *lines: object, has_photos: bool = False) -> LoadedGroups:
    path = folder / "x_stage_a.jsonl"
    texts = (one if isinstance(one, str) else json.dumps(one) for one in lines)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    found = load_records([path], QUESTIONS.missions, WORDS, root=folder, has_photos=has_photos)
    assert found.num_files == len(found.groups) + found.drops.total == len(lines)
    return found


def test_a_group_is_what_its_line_says(tmp_path: Path) -> None:
    failing = make_record("b", label="fail", timestamp="2025")
    found = load(tmp_path, make_record(), failing)
    assert [(one.group_id, one.label, len(one.photos)) for one in found.groups] == [
        ("a", "pass", 2),
        ("b", "fail", 2),
    ]
    assert found.records == (make_record(), failing)
    assert found.groups[0].key == f"{MISSION}/审核通过/a"


TWICE = json.dumps(make_record("b"), ensure_ascii=False).replace('"图片_2":', '"图片_1":')


@pytest.mark.parametrize(
    ("line", "reason", "where"),
    [
        (make_record("b", per_image={"图片_1": "x"}), "wrong keys", "图片_1"),
        (
            make_record("b", per_image={"图片_2": "x", "图片_1": "x"}),
            "wrong keys",
            "图片_2, 图片_1",
        ),
        (make_record("b", per_image={"图片_1": "x", "图片_3": "x"}), "wrong keys", "图片_3"),
        (make_record("b", per_image={"image_1": "x", "image_2": "x"}), "wrong keys", "image_1"),
        (TWICE, "line cannot be read", "图片_1 appears twice"),
        (make_record("b", per_image={"图片_1": "x", "图片_2": " "}), "an empty summary", "图片_2"),
        (make_record("b", label=None), "no label", "b"),
        (make_record("b", label="通过"), "a wrong label", "通过"),
        (make_record("b", images=["1.jpg", "2.jpg"]), "wrong photos", "1.jpg"),
        (make_record("b", images=["/p/1.jpg", "/p/2.jpg"]), "wrong photos", "/p/1.jpg"),
        (make_record("b", images=["p/1.jpg", "p/../../2.jpg"]), "wrong photos", "../2.jpg"),
        (make_record("a"), "photo group appears twice", "审核通过/a"),
        ({"failed": "图片_1: empty"}, "missing fields", "group_id"),
        ("[1]", "line cannot be read", "not a JSON object"),
        ("{", "line cannot be read", ""),
    ],
)
def test_a_broken_line_is_dropped_and_counted(
    tmp_path: Path, line: object, reason: str, where: str
) -> None:
    found = load(tmp_path, make_record(), line)
    [drop] = found.drops.rows
    assert drop.reason == reason
    assert drop.where.startswith("x_stage_a.jsonl:2 ")
    assert where in drop.where


@given(st.permutations([1, 2, 3]), st.integers(1, 4))
def test_only_every_line_once_and_in_order_is_taken(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], num_photos: int
) -> None:
    images = [f"m/l/b/{number}.jpg" for number in range(num_photos)]
    per_image = {f"图片_{number}": "x" for number in order}
    record = make_record("b", images=images, per_image=per_image)
    found = load(tmp_path_factory.mktemp("records"), make_record(), record)
    assert (len(found.groups) == 2) == (order == [1, 2, 3] and num_photos == 3)


def test_with_a_root_the_photos_must_be_there(tmp_path: Path) -> None:
    for image in make_record()["images"]:
        (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / image).touch()
    found = load(tmp_path, make_record(), make_record("b"), has_photos=True)
    assert found.drops.counts == {"photo is not there": 1}
    assert all(path.is_file() for path in found.groups[0].photos)


def leave_out(folder: Path) -> None:
    load(folder, make_record(label=None))


def name_other(folder: Path) -> None:
    load(folder, make_record(mission="天线检查"))


def name_nothing(folder: Path) -> None:
    load_records([folder / "gone.jsonl"], QUESTIONS.missions, WORDS, root=folder)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (leave_out, "x_stage_a.jsonl has no photo group that can be used; got 1 x no label"),
        (name_other, "x_stage_a.jsonl names a mission that is not in the mission table"),
        (name_nothing, "cannot read"),
    ],
)
def test_what_cannot_be_used_at_all_is_one_sentence(
    tmp_path: Path, read: Callable[[Path], None], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path)
