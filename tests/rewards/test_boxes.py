import json
from itertools import permutations

import numpy as np
import pytest
from corpora import read_cases
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask as coco_mask
from pydantic import ValidationError

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import Box, BoxIou, BoxParser
from groupwise.rewards.boxes import compute_iou, match_boxes, parse_boxes

CASES = read_cases(__file__)

CAR = [10, 20, 110, 70, "car"]
DOG = [200, 200, 300, 260, "dog"]


def make_item(boxes: object = (CAR, DOG), **fields: object) -> Example:
    given_boxes = list(boxes) if isinstance(boxes, tuple) else boxes
    return make_example(
        [Message("user", "Where?")], cluster="g", fields={"boxes": given_boxes} | fields
    )


def score(text: str, boxes: object = (CAR, DOG), **options: object) -> Score:
    return BoxIou(BoxParser(words=True, **options))(make_item(boxes), Completion(text))


@pytest.mark.parametrize(("text", "value"), CASES["the_best_pairs_count_over_the_larger_number"])
def test_the_best_pairs_count_over_the_larger_number(text: str, value: float) -> None:
    got = score(text)
    assert got.value == pytest.approx(value)
    assert not got.invalid


@pytest.mark.parametrize("malformed", CASES["malformed_boxes_are_predictions_without_overlap"])
def test_malformed_boxes_are_predictions_without_overlap(malformed: str) -> None:
    alone = score(malformed)
    assert (alone.value, alone.invalid) == (0.0, True)
    num_malformed = parse_boxes(malformed)[1]
    beside = score(f"[10,20,110,70 car] [200,200,300,260 dog] {malformed}")
    assert beside.value == pytest.approx(2 / (2 + num_malformed))
    assert not beside.invalid


BARE = (CAR[:4], DOG[:4])
FENCED = """Here they are:
```json
[
\t{"bbox_2d": [10, 20, 110, 70], "label": "car"},
\t{"bbox_2d": [200, 200, 300, 260], "label": "dog"}
]
```"""


@pytest.mark.parametrize("text", CASES["boxes_without_labels_in_the_forms_of_common_models"])
def test_boxes_without_labels_in_the_forms_of_common_models(text: str) -> None:
    assert score(text, BARE) == Score(1.0, "mean IoU 1.000 of 2 boxes, 2 expected")
    assert score(text.replace("70", "45"), BARE).value == 0.75


@pytest.mark.parametrize("text", [FENCED, "(10,20),(110,70)(200,200),(300,260)"])
def test_forms_without_a_label_are_read_where_the_references_have_one(text: str) -> None:
    assert score(text).value == 1.0
    assert score(text, match_labels=True).value == float("label" in text)


@pytest.mark.parametrize(
    "text",
    [
        "[110,20,10,70]",
        "[10,20,110]",
        "[10,20,110,70,5]",
        "[[10,20],[110,70]]",
        "[10,20,110,70",
        "(110,20),(10,70)",
        "(10,20),(110,)",
        "(10,20),(110,20),(110,70),(10,70)",
        "(10,20),(110,70),(200,200)",
        "(-10,20),(110,70)",
        '{"bbox_2d": [10, 20, 110]}',
        '{"bbox_2d": [10, 20, 110, "70"]}',
        '{"bbox_2d": [10, 20, 110, true]}',
        '{"bbox_2d": [10, 20, 110, 1e9]}',
        f'{{"bbox_2d": [10, 20, 110, 1{"0" * 400}]}}',
        '{"bbox_2d": [[10, 20, 110, 70]]}',
        '{"bbox_2d": [10, 20, 110, 70], "label": 3}',
        '{"bbox_2d": [0, 0, 5, 5], "bbox_2d": [10, 20, 110, 70]}',
        '{"bbox_2d": [10, 20, 110, 70], "label": "car"',
        '{"bbox_2d": [10, 20, 110, 70], "label": {}}',
        "{'bbox_2d': [10, 20, 110, 70]}",
        "[10,20,110,70] (10,20),(110,70)",
        '{"bbox_2d": [10, 20, 110, 70]} [10,20,110,70]',
    ],
)
def test_what_is_ambiguous_or_torn_is_malformed_and_the_reason_shows_the_form(text: str) -> None:
    got = score(text, (CAR[:4],))
    assert (got.value, got.invalid) == (0.0, True)
    assert '[x1,y1,x2,y2], {"bbox_2d": [x1,y1,x2,y2]} or (x1,y1),(x2,y2)' in got.reason


def test_labels_are_shown_in_the_reason_and_count_where_they_are_asked_for() -> None:
    shown = '[x1,y1,x2,y2 label] or {"bbox_2d": [x1,y1,x2,y2], "label": "label"}'
    assert shown in score("[10,20,110,70]").reason
    assert shown in score("there is a car at the left").reason
    text = "[10,20,110,70 dog] [200,200,300,260 Dog]"
    assert score(text).value == 1.0
    assert score(text, match_labels=True).value == 0.5


def test_boxes_are_scaled_from_the_picture_that_the_model_saw() -> None:
    item = make_item((CAR,), picture_size=[640, 480], seen_size=[320, 120])
    assert BoxIou()(item, Completion("[5,5,55,17.5 car]")).value == pytest.approx(1.0)
    assert BoxIou()(item, Completion("[10,20,110,70 car]")).value < 0.2
    same = make_item((CAR,), picture_size=[640, 480])
    assert BoxIou()(same, Completion("[10,20,110,70 car]")).value == 1.0


def test_without_reference_boxes_there_is_nothing_to_earn() -> None:
    bare = make_example([Message("user", "Where?")], cluster="g")
    assert BoxIou()(bare, Completion("[1,2,3,4 a]")) == Score(None, "no field boxes")
    assert score("none", ()) == Score(None, "no boxes")
    assert score("[1,2,3,4 a]", ()) == Score(0.0, "a box where there is none")
    named = BoxIou(BoxParser(boxes="label", words=True))
    assert named(make_item(label=[CAR]), Completion("[10,20,110,70 car]")).value == 1.0


def test_the_boxes_may_stand_in_a_tag() -> None:
    reward = BoxIou(BoxParser(tags=("think", "answer"), tag="think", words=True))
    item = make_item((CAR,))
    text = "<think>[10,20,110,70 car]</think><answer>[0,0,1,1 x]</answer>"
    assert reward(item, Completion(text)).value == 1.0
    got = reward(item, Completion("[10,20,110,70 car]"))
    assert got == Score(0.0, "<think> is missing", invalid=True)
    with pytest.raises(ValidationError, match="no tag 'where'"):
        BoxParser(tags=("think", "answer"), tag="where")


def test_empty_texts_and_floods_of_boxes_are_invalid() -> None:
    assert score(" ") == Score(0.0, "empty answer", invalid=True)
    assert score("[10,20,110,70 car]" * 101) == Score(0.0, "more than 100 boxes", invalid=True)


@pytest.mark.parametrize(
    "boxes", ["x", [[1, 2, 3]], [[1, 2, 3, "4"]], [[1, 2, 3, 4, "a", "b"]], [3], {"a": 1}]
)
def test_reference_boxes_that_cannot_be_used_are_an_error(boxes: object) -> None:
    for text in ("[1,2,3,4 a]", " "):
        with pytest.raises(RewardError, match="reference boxes that cannot be used"):
            score(text, boxes)


def test_reversed_references_and_bad_sizes_are_an_error() -> None:
    with pytest.raises(RewardError, match="a box has no area"):
        score("[1,2,3,4 a]", ([3, 2, 1, 4],))
    for size in ([0, 480], [640], "640x480"):
        item = make_item((CAR,), picture_size=[640, 480], seen_size=size)
        with pytest.raises(RewardError, match="picture size"):
            BoxIou()(item, Completion("[1,2,3,4 a]"))


@pytest.mark.parametrize(
    "piece", ['{"a":', '{"bbox_2d":', "{", "(1,2),", "(1,", "[1,2,3,4", " ", " ,", " a", '{"', "1"]
)
def test_no_text_takes_for_ever_to_read(piece: str) -> None:
    for start, end in (("[1,2,3,4", "]"), ("[1,2,3,4 ", ",]"), ("(1,2)", ")"), ("", "")):
        got = score(start + piece * 10_000 + end, (CAR[:4],))
        assert got.value is not None
        assert got.value < 0.1


SIDE = 12


@st.composite
def draw_box(draw: st.DrawFn) -> Box:
    x1, y1 = draw(st.integers(0, SIDE - 1)), draw(st.integers(0, SIDE - 1))
    x2, y2 = draw(st.integers(x1 + 1, SIDE)), draw(st.integers(y1 + 1, SIDE))
    return Box(x1, y1, x2, y2, draw(st.sampled_from(["car", "dog"])))


def list_pixels(box: Box) -> set[tuple[int, int]]:
    columns, rows = range(int(box.x1), int(box.x2)), range(int(box.y1), int(box.y2))
    return {(x, y) for x in columns for y in rows}


@given(draw_box(), draw_box())
def test_the_iou_is_that_of_counted_pixels(a: Box, b: Box) -> None:
    pixels_a, pixels_b = list_pixels(a), list_pixels(b)
    expected = len(pixels_a & pixels_b) / len(pixels_a | pixels_b)
    assert compute_iou(a, b) == pytest.approx(expected)
    assert compute_iou(a, b) == compute_iou(b, a)
    assert compute_iou(a, a) == 1.0


@given(draw_box(), draw_box())
def test_the_iou_is_that_of_coco(a: Box, b: Box) -> None:
    sides = [np.array([[x.x1, x.y1, x.x2 - x.x1, x.y2 - x.y1]]) for x in (a, b)]
    assert coco_mask.iou(*sides, [0])[0, 0] == pytest.approx(compute_iou(a, b))


small = st.lists(draw_box(), min_size=1, max_size=4)


@given(small, small)
def test_the_pairs_are_the_best_of_all_that_there_are(
    predicted: list[Box], references: list[Box]
) -> None:
    few, many = sorted((predicted, references), key=len)
    best = max(
        sum(compute_iou(a, b) for a, b in zip(few, order, strict=False))
        for order in permutations(many, len(few))
    )
    assert sum(match_boxes(predicted, references, match_labels=False)) == pytest.approx(best)


def write(boxes: list[Box]) -> str:
    return " ".join(f"[{b.x1},{b.y1},{b.x2},{b.y2} {b.label}]" for b in boxes)


def list_rows(boxes: list[Box]) -> tuple[list[object], ...]:
    return tuple([b.x1, b.y1, b.x2, b.y2, b.label] for b in boxes)


@given(small)
def test_the_references_earn_all(references: list[Box]) -> None:
    assert score(write(references), list_rows(references)).value == pytest.approx(1.0)
    assert parse_boxes(write(references)) == (references, 0)


FORMS = {
    "bare": lambda b: f"[{b.x1},{b.y1},{b.x2},{b.y2}]",
    "pair": lambda b: f"({b.x1},{b.y1}),({b.x2},{b.y2})",
    "json": lambda b: json.dumps({"bbox_2d": [b.x1, b.y1, b.x2, b.y2]}),
    "json with label": lambda b: json.dumps({"bbox_2d": [b.x1, b.y1, b.x2, b.y2], "label": "a}b"}),
}


@given(small, small, st.sampled_from(sorted(FORMS)), st.sampled_from(["\n", " ", "; ", " and "]))
def test_every_form_earns_what_the_first_one_does(
    predicted: list[Box], references: list[Box], form: str, between: str
) -> None:
    rows = tuple([b.x1, b.y1, b.x2, b.y2] for b in references)
    text = between.join(FORMS[form](box) for box in predicted)
    assert score(text, rows) == score(write(predicted), rows)


@given(
    st.lists(st.sampled_from([*'[](){}"0123456789,. -abc\n:', '"bbox_2d"']), max_size=60).map(
        "".join
    ),
    small,
)
def test_any_text_is_scored_in_range_and_invalid_never_pays(
    text: str, references: list[Box]
) -> None:
    got = score(text, list_rows(references))
    assert got.value is not None
    assert not (got.invalid and got.value)


def test_boxes_as_an_answer() -> None:
    parser = BoxParser(words=True)
    text = "Here: [10,20,110,70 car][1,2,3,x]"
    found = parser.parse(text, make_item((CAR,)))
    assert found.label == '[{"bbox_2d": [10.0, 20.0, 110.0, 70.0], "label": "car"}]'
    assert found.value == (Box(10, 20, 110, 70, "car"), None)
    assert parser.parse("none").label == parser.write("[]") == "[]"
    assert parser.parse("[1,2,3,4]").label == parser.write("[[1, 2, 3, 4]]")
    assert parser.parse("[1,2,3,4]", make_item((CAR,))).label is None
    assert parser.measure(make_item((CAR,)), parser.write(json.dumps([CAR]))) == 1.0
    assert json.loads(parser.write(json.dumps([CAR])))[0]["label"] == "car"
    assert parser.measure(make_item((CAR,)), text) == 0.5
    assert parser.measure(make_item((CAR,)), "no car") == 0.0
    assert parser.measure(make_item((CAR,)), "[1,2,3,x]") is None


@pytest.mark.parametrize(
    ("text", "is_alone"), CASES["words_beside_boxes_are_no_answer_unless_they_may_be"]
)
def test_words_beside_boxes_are_no_answer_unless_they_may_be(text: str, is_alone: bool) -> None:
    assert (BoxParser().parse(text).label is not None) is is_alone
    assert BoxParser(words=True).parse(text).label is not None
