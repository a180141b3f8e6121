"""Names of people, the order of what is learned, and feedback as files."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError
from groupwise.feedback import (
    FeedbackItem,
    GivenLabel,
    Shown,
    name_person,
    order_by_priority,
    read_items,
    read_label_studio,
    write_items,
    write_label_studio,
)

LABELS = st.sampled_from(["on-task", "off-task"])
SHOWN = st.builds(
    Shown,
    id=st.uuids().map(str),
    at_s=st.floats(0, 1e9),
    row=st.just({"task": "编写报告"}),
    session=st.text("ab", max_size=3),
    pictures=st.lists(st.text("0123456789abcdef", min_size=4, max_size=4)).map(tuple),
    prediction=st.none() | LABELS,
    confidence=st.none() | st.floats(0, 1),
    version=st.just("v1"),
)
SAID = st.lists(
    st.builds(GivenLabel, person=st.text("pqr", max_size=2), label=LABELS, at_s=st.floats(0, 1e9)),
    min_size=1,
    max_size=3,
    unique_by=lambda given: given.person,
).map(tuple)
ITEMS = st.lists(
    st.builds(FeedbackItem, shown=SHOWN, labels=SAID), max_size=8, unique_by=lambda i: i.shown.id
)


@given(ITEMS, st.randoms())
def test_the_order_is_that_of_what_teaches_most(items, random):
    ordered = order_by_priority(items)
    agreed = [item for item in items if len({given.label for given in item.labels}) == 1]
    assert {item.shown.id for item in ordered} == {item.shown.id for item in agreed}
    shuffled = items[:]
    random.shuffle(shuffled)
    assert order_by_priority(shuffled) == ordered

    def kind(item):
        return (not item.is_correction) + (
            not item.is_correction or (item.shown.confidence or 0) <= 0.7
        )

    kinds = [kind(item) for item in ordered]
    assert kinds == sorted(kinds)
    for one, other in pairwise(ordered):
        if kind(one) == kind(other) == 0:
            assert one.shown.confidence >= other.shown.confidence
        elif kind(one) == kind(other):
            assert one.at_s >= other.at_s


@given(ITEMS)
def test_what_is_written_is_read(tmp_path_factory, items):
    path = tmp_path_factory.mktemp("items") / "items.jsonl"
    write_items(path, items)
    assert read_items(path) == items


def test_a_line_that_is_no_item_is_named(tmp_path):
    (tmp_path / "items.jsonl").write_text('{"shown": {"id": "a"}, "labels": []}\n')
    with pytest.raises(DataError, match=r"row 1 of .* is no feedback \(shown.at_s\)"):
        read_items(tmp_path / "items.jsonl")


def test_people_are_known_by_a_keyed_digest_alone():
    assert name_person("ann", b"k" * 16) == name_person("ann", b"k" * 16)
    assert len({name_person(u, k) for u in ("ann", "bob") for k in (b"k" * 16, b"l" * 16)}) == 4
    assert "ann" not in name_person("ann", b"k" * 16)


def make_item(name: str, *labels: str) -> FeedbackItem:
    shown = Shown(name, 1.0, {"task": "写"}, "s", ("abcd",), "on-task", 0.75, "v1")
    said = tuple(GivenLabel(f"p{n}", label, 2.0) for n, label in enumerate(labels))
    return FeedbackItem(shown, said)


def test_tasks_have_the_answer_and_annotations_are_read(tmp_path):
    path = tmp_path / "tasks.json"
    write_label_studio(path, [make_item(name, "off-task").shown for name in "ab"], address="x/")
    first, second = json.loads(path.read_text())
    assert first["data"]["picture"] == "x/abcd"
    assert first["data"]["task"] == "写"
    [prediction] = first["predictions"]
    assert (prediction["score"], prediction["model_version"]) == (0.75, "v1")
    [choice] = prediction["result"]
    assert choice["value"] == {"choices": ["on-task"]}
    for task, people in ((first, (3, 4)), (second, ({"email": "eve"},))):
        task["annotations"] = [{"completed_by": one, "result": [choice]} for one in people]
    path.write_text(json.dumps([first, second]))
    assert read_label_studio(path) == [
        ("a", "3", "on-task"),
        ("a", "4", "on-task"),
        ("b", "eve", "on-task"),
    ]


@pytest.mark.parametrize(
    "task",
    [
        {"data": {}, "annotations": []},
        {"data": {"groupwise_id": "a"}},
        {
            "data": {"groupwise_id": "a"},
            "annotations": [{"completed_by": 3, "result": []}],
        },
    ],
)
def test_tasks_that_are_not_ours_are_named(tmp_path, task):
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    with pytest.raises(DataError, match="task 1 of"):
        read_label_studio(tmp_path / "tasks.json")


def test_cancelled_annotations_are_left_out(tmp_path):
    said = {"completed_by": 3, "result": [], "was_cancelled": True}
    task = {"data": {"groupwise_id": "a"}, "annotations": [said]}
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    assert read_label_studio(tmp_path / "tasks.json") == []
