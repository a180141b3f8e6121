"""DrivingVQA, A-OKVQA and the files with its boxes, on small made files of the published form."""

from pathlib import Path
from typing import Any

import pytest

from groupwise.core import DataError, write_json
from groupwise.rewards import Box
from groupwise_recipes.visual_reasoning.rows import read_rows, write_rows
from groupwise_recipes.visual_reasoning.sources import (
    CocoBoxes,
    InterleavedBoxes,
    load_aokvqa,
    load_drivingvqa,
)


def driving(**values: Any) -> dict[str, Any]:
    told = {
        "questions": "I can park:",
        "possible_answers": {"A": "here", "B": "there", "C": "nowhere"},
        "true_answers": ["C", "A"],
        "has_multiple_questions": False,
        "img_filename": "7.jpg",
        "img_size": [600, 400],
        "relevant_entities": [{"sign": [10, 20, 30, 40]}, {"line": [0.5, 300, 599.6, 100]}],
        "explanation": "The sign allows it.",
        "interleaved_explanation": "The sign [10, 20, 40, 60] allows it.",
        "exam_type": "car",
    }
    return {**told, **values}


def test_drivingvqa_has_sets_of_answers_and_boxes_in_corners(tmp_path: Path):
    write_json(tmp_path / "test.json", {"7": driving(), "8": driving(relevant_entities=[])})
    row, without = load_drivingvqa(tmp_path / "test.json", split="test").rows
    assert row.answers == {"A", "C"}
    assert row.answer == "A,C"
    assert row.choices == {"A": "here", "B": "there", "C": "nowhere"}
    assert row.boxes == (Box(10, 20, 40, 60, "sign"), Box(0.5, 300, 600, 400, "line"))
    assert without.boxes == ()
    assert (row.text, row.split, row.cluster) == ("I can park:", "test", "7.jpg")
    assert [one.text for one in row.reasonings] == ["The sign allows it."]
    write_rows(tmp_path / "rows.jsonl", [row, without])
    assert read_rows(tmp_path / "rows.jsonl") == [row, without]


def test_each_of_two_questions_names_its_choices(tmp_path: Path):
    choices = {"A": "yes", "B": "no", "C": "yes", "D": "no"}
    both = {"questions": ["May I stop?", "May I park?"], "possible_answers": choices}
    told = {
        "1": driving(**both, true_answers=["A", "D"]),
        "2": driving(**both, true_answers=["A", "B"]),
        "3": driving(true_answers=["E"]),
        "4": driving(true_answers=[]),
        "5": driving(img_size=[30, 400]),
        "6": driving(possible_answers=["here"]),
    }
    write_json(tmp_path / "train.json", told)
    loaded = load_drivingvqa(tmp_path / "train.json", split="train")
    (row,) = loaded.rows
    assert row.text == "May I stop? (A, B)\nMay I park? (C, D)"
    assert row.answers == {"A", "D"}
    assert loaded.drops.counts == {
        "no answer": 2,
        "answer is no choice": 1,
        "box outside of the picture": 1,
        "not of the published form": 1,
    }
    assert "one of two questions has no right answer; got ['A', 'B']" in loaded.drops.rows[0].where


def question(name: str, image: int, asked: str, **values: Any) -> dict[str, Any]:
    told = {
        "split": "train",
        "image_id": image,
        "question_id": name,
        "question": asked,
        "choices": ["skateboarder", "train", "delivery", "cab"],
        "correct_choice_idx": 3,
        "direct_answers": ["ride"] * 9 + ["cab"],
        "difficult_direct_answer": False,
        "rationales": ["The man has luggage.", ""],
    }
    return {**told, **values}


ASKED = "What is the man by the suitcases awaiting?"


def write_questions(folder: Path) -> Path:
    path = folder / "aokvqa_v1p0_train.json"
    told = [
        question("q1", 299207, ASKED),
        question("q2", 299207, "What is this?"),
        question("q3", 5, ASKED, correct_choice_idx=None),
        question("q4", 5, ASKED, correct_choice_idx=4),
        question("q5", 5, ASKED, choices=["one"]),
        question("q6", 5, ASKED, split="val"),
    ]
    write_json(path, told)
    return path


def test_aokvqa_without_boxes_keeps_its_rows(tmp_path: Path):
    loaded = load_aokvqa(write_questions(tmp_path))
    assert [(row.id, row.split) for row in loaded.rows] == [
        ("q1", "train"),
        ("q2", "train"),
        ("q6", "validation"),
    ]
    row = loaded.rows[0]
    assert (row.answers, row.choices["D"], row.cluster) == ({"D"}, "cab", "299207")
    assert row.direct_answers == ("ride",) * 9 + ("cab",)
    assert [one.text for one in row.reasonings] == ["The man has luggage."]
    assert row.boxes is None
    assert loaded.num_without_boxes == 3
    assert loaded.drops.counts == {
        "answer is no choice": 1,
        "no answer": 1,
        "not of the published form": 1,
    }


def test_pictures_of_aokvqa_are_those_of_coco(tmp_path: Path):
    path = write_questions(tmp_path)
    (tmp_path / "train2017").mkdir()
    (tmp_path / "train2017" / "000000299207.jpg").touch()
    loaded = load_aokvqa(path, pictures=tmp_path)
    assert {row.picture for row in loaded.rows} == {tmp_path / "train2017" / "000000299207.jpg"}
    assert loaded.drops.counts["missing picture"] == 1


def coco(**values: Any) -> dict[str, Any]:
    told = {
        "info": {"year": 2017},
        "images": [{"id": 299207, "width": 640, "height": 480, "file_name": "000000299207.jpg"}],
        "annotations": [
            {"image_id": 299207, "category_id": 33, "bbox": [1, 2, 30, 40], "iscrowd": 0},
            {"image_id": 299207, "category_id": 33, "bbox": [0, 0, 600, 400], "iscrowd": 1},
            {"image_id": 299207, "category_id": 3, "bbox": [5, 5, 5, 5], "iscrowd": 0},
            {"image_id": 5, "category_id": 33, "bbox": [7, 7, 7, 7], "iscrowd": 0},
        ],
        "categories": [{"id": 33, "name": "suitcase"}, {"id": 3, "name": "car"}],
    }
    return {**told, **values}


def test_coco_gives_the_boxes_of_the_kinds_that_are_named(tmp_path: Path):
    """Cars are not named (luggage and cab do not name them), and crowds are no box of one thing."""
    write_json(tmp_path / "instances_train2017.json", coco())
    boxes = CocoBoxes(tmp_path / "instances_train2017.json")
    loaded = load_aokvqa(write_questions(tmp_path), boxes=boxes)
    assert [row.boxes for row in loaded.rows] == [(Box(1, 2, 31, 42, "suitcase"),), None, None]
    assert loaded.rows[0].picture_size == (640, 480)
    assert loaded.num_without_boxes == 2


def test_an_interleaved_file_is_joined_by_picture_and_question(tmp_path: Path):
    told = driving(questions=f" {ASKED}", img_filename="COCO_train2017_000000299207.jpg")
    other = driving(questions=ASKED, img_filename="train2017/000000000006.jpg")
    write_json(tmp_path / "interleaved.json", {"0": told, "1": other})
    boxes = InterleavedBoxes(tmp_path / "interleaved.json")
    loaded = load_aokvqa(write_questions(tmp_path), boxes=boxes)
    found = [[box.label for box in row.boxes or ()] for row in loaded.rows]
    assert found == [["sign", "line"], [], []]
    assert loaded.num_without_boxes == 2


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"categories": []}, "has boxes of no category; got 3"),
        ({"images": [{"id": 1}]}, r"is not COCO's file; got images\.0\.width: Field required"),
    ],
)
def test_a_wrong_file_of_coco_is_one_sentence(
    tmp_path: Path, values: dict[str, Any], sentence: str
):
    write_json(tmp_path / "instances.json", coco(**values))
    with pytest.raises(DataError, match=sentence):
        CocoBoxes(tmp_path / "instances.json")


def test_a_wrong_interleaved_file_is_one_sentence(tmp_path: Path):
    path = tmp_path / "interleaved.json"
    write_json(path, {"0": driving(img_filename="picture.jpg")})
    with pytest.raises(DataError, match=r"no number of COCO; got picture\.jpg"):
        InterleavedBoxes(path)
    write_json(path, {"0": driving(), "1": driving()})
    with pytest.raises(DataError, match="has 1 questions of one picture twice"):
        InterleavedBoxes(path)
