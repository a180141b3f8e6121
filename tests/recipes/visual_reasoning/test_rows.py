"""The one form of a row: what contradicts itself is dropped with a reason, the rest comes back."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError
from groupwise.rewards import Box
from groupwise_recipes.visual_reasoning.rows import (
    Reasoning,
    RowError,
    VisualRow,
    collect_rows,
    make_box,
    read_rows,
    write_rows,
)

CHOICES = {"A": "a cab", "B": "a train", "C": "a cab"}


def row(**values: Any) -> VisualRow:
    given = {
        "id": "1",
        "source": "made",
        "split": "train",
        "text": "The cup is on the table.",
        "answers": frozenset({"True"}),
        "cluster": "picture",
    }
    return VisualRow(**{**given, **values})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"text": " "}, "no text"),
        ({"cluster": ""}, "no cluster"),
        ({"relation": ""}, "no relation"),
        ({"partner": "1"}, "wrong partner"),
        ({"answers": frozenset()}, "no answer"),
        ({"answers": frozenset({"yes"})}, "answer is no choice"),
        ({"answers": frozenset({"True", "False"})}, "true and false"),
        ({"choices": {"A": "one"}, "answers": frozenset("A")}, "fewer than 2 choices"),
        ({"picture_size": (0, 5)}, "no picture size"),
        ({"boxes": (Box(0, 0, 1, 1, "cup"),)}, "no picture size"),
        ({"boxes": (Box(0, 0, 1, 1),), "picture_size": (9, 9)}, "box without a name"),
        (
            {"boxes": (Box(0, 0, 1, 10, "cup"),), "picture_size": (10, 9)},
            "box outside of the picture",
        ),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(values: dict[str, Any], reason: str):
    with pytest.raises(RowError) as caught:
        row(**values)
    assert caught.value.reason == reason
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_every_record_is_a_row_or_a_drop():
    records = [("line 1", {}), ("line 2", {"text": ""}), ("line 3", {}), ("line 4", {"id": "2"})]
    loaded = collect_rows(records, make=lambda values: row(**values))
    assert [one.id for one in loaded.rows] == ["1", "2"]
    assert loaded.drops.counts == {"no text": 1, "repeated id": 1}
    assert [drop.where.split(":")[0] for drop in loaded.drops.rows] == ["line 2", "line 3"]
    assert loaded.num_records == 4
    assert loaded.num_without_boxes == 2


@pytest.mark.parametrize(
    "other",
    [
        {"partner": "3"},
        {"partner": None},
        {"partner": "1", "cluster": "another"},
        {"partner": "1", "split": "test"},
        {"partner": "1", "answers": frozenset({"True"})},
        {"partner": "1", "text": ""},
    ],
)
def test_half_a_pair_is_dropped(other: dict[str, Any]):
    second = {"id": "2", "answers": frozenset({"False"}), **other}
    records = [("first", {"partner": "2"}), ("second", second), ("alone", {"id": "3"})]
    loaded = collect_rows(records, make=lambda values: row(**values))
    assert loaded.drops.counts["half a pair"] >= 1
    assert "1" not in [one.id for one in loaded.rows]
    whole = [("first", {"partner": "2"}), ("second", second | {**row_pair()})]
    assert len(collect_rows(whole, make=lambda values: row(**values)).rows) == 2


def test_nothing_left_is_refused():
    with pytest.raises(
        DataError, match=r"no row that can be used; got \{'no text': 1\}, the first"
    ):
        collect_rows([("line 1", {"text": ""})], make=lambda values: row(**values))
    with pytest.raises(DataError, match="no row that can be used; got none"):
        collect_rows([], make=lambda values: row(**values))


def row_pair() -> dict[str, Any]:
    return {
        "partner": "1",
        "cluster": "picture",
        "split": "train",
        "answers": frozenset({"False"}),
        "text": "The cup is on the table.",
    }


def test_rows_come_back_from_a_file(tmp_path: Path):
    rows = [
        row(relation="on", picture=tmp_path / "a.png", depth=tmp_path / "d.png"),
        row(
            id="2",
            choices=CHOICES,
            answers=frozenset("CA"),
            picture_size=(20, 30),
            boxes=(Box(1.5, 2, 3, 4, "cab"),),
            direct_answers=("cab", "cab", "taxi"),
            reasonings=(Reasoning("there is a street", "A", aligns=True),),
        ),
        row(id="3", boxes=()),
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert read_rows(tmp_path / "rows.jsonl") == rows
    assert [one.answer for one in rows] == ["True", "A,C", "True"]
    assert [one.is_statement for one in rows] == [True, False, True]


def test_a_damaged_file_is_one_sentence(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, [row()])
    path.write_text(path.read_text().replace('"train"', '"training"'))
    with pytest.raises(DataError, match=r"rows\.jsonl row 1 is damaged; got split"):
        read_rows(path)


SIDE = st.floats(-3, 53, allow_nan=False)


@given(st.tuples(SIDE, SIDE, SIDE, SIDE))
def test_a_box_is_inside_or_refused(sides: tuple[float, float, float, float]):
    x1, y1, x2, y2 = sides
    is_good = x1 < x2 and y1 < y2 and min(x1, y1) >= -1 and x2 <= 41 and y2 <= 51
    try:
        box = make_box(sides, "cup", size=(40, 50))
    except RowError:
        has_area = min(x2, 40) > max(x1, 0) and min(y2, 50) > max(y1, 0)
        assert not (is_good and has_area)
    else:
        assert is_good
        assert 0 <= box.x1 < box.x2 <= 40
        assert 0 <= box.y1 < box.y2 <= 50
        for old, new in zip(sides, (box.x1, box.y1, box.x2, box.y2), strict=True):
            assert abs(old - new) <= 1
