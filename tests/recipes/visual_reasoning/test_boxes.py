"""Boxes of the original picture in the coordinates of the picture that a model sees, and back."""

import random
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rectangles import draw_rectangle, find_rectangle, list_sides, show
from transformers import Qwen2VLImageProcessorPil

from groupwise.core import Completion, DataError, Message, ModelError, make_example
from groupwise.models import count_picture_tokens
from groupwise.rewards import Box, BoxIou, BoxParser
from groupwise_recipes.visual_reasoning.boxes import (
    CoordinateForm,
    convert_box,
    find_coordinate_form,
    find_frame,
    find_seen_size,
    write_box,
)

# Patches as of Qwen2.5-VL and Qwen3-VL; limits that scale some pictures down and some up.
PROCESSORS = {
    "qwen2_5_vl": Qwen2VLImageProcessorPil(
        patch_size=14, size={"shortest_edge": 8 * 28**2, "longest_edge": 60 * 28**2}
    ),
    "qwen3_vl": Qwen2VLImageProcessorPil(
        patch_size=16, size={"shortest_edge": 8 * 32**2, "longest_edge": 60 * 32**2}
    ),
}


def test_boxes_are_where_the_resized_picture_has_them_for_a_thousand_sizes():
    rng, scales = random.Random(1), list[float]()
    for number in range(1000):
        processor = list(PROCESSORS.values())[number % 2]
        picture, box = draw_rectangle(rng)
        seen = show(picture, processor)
        size = seen.shape[1], seen.shape[0]
        assert find_seen_size(picture.size, processor) == size
        found = list_sides(find_rectangle(seen))
        for form in get_args(CoordinateForm):
            frame = find_frame(picture.size, form=form, image_processor=processor)
            framed = convert_box(box, given=picture.size, wanted=frame)
            placed = convert_box(framed, given=frame, wanted=size)
            assert np.abs(list_sides(placed) - found).max() <= 1
            back = convert_box(framed, given=frame, wanted=picture.size)
            assert list_sides(back) == pytest.approx(list_sides(box))
        scales.append(size[0] / picture.size[0])
    assert min(scales) < 0.8
    assert max(scales) > 2


@pytest.mark.parametrize("model_type", PROCESSORS)
def test_written_boxes_earn_what_they_should_when_read_in_their_frame(model_type: str):
    processor, rng = PROCESSORS[model_type], random.Random(7)
    reward = BoxIou(BoxParser(tags=("think", "answer"), tag="think", words=True))
    for _ in range(100):
        picture, box = draw_rectangle(rng)
        form = find_coordinate_form(model_type)
        frame = find_frame(picture.size, form=form, image_processor=processor)
        text = write_box(convert_box(box, given=picture.size, wanted=frame), frame=frame)
        fields = {
            "boxes": [[box.x1, box.y1, box.x2, box.y2]],
            "picture_size": picture.size,
            "seen_size": frame,
        }
        item = make_example([Message("user", "Where?")], cluster="a", fields=fields)
        score = reward(item, Completion(f"<think>{text}</think><answer>True</answer>"))
        assert score.value is not None
        assert score.value > 0.75


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_the_seen_size_is_the_one_by_which_tokens_are_counted(width: int, height: int):
    for processor in (*PROCESSORS.values(), Qwen2VLImageProcessorPil()):
        token = processor.patch_size * processor.merge_size
        if max(width, height) > 200 * min(width, height):
            with pytest.raises(DataError, match=f"of that shape; got {width}x{height} pixels"):
                find_seen_size((width, height), processor)
            continue
        columns, rows = (side // token for side in find_seen_size((width, height), processor))
        assert columns * rows == count_picture_tokens(processor, width, height)


def test_pictures_without_a_size_are_refused():
    with pytest.raises(DataError, match="got 0x10 pixels"):
        find_seen_size((0, 10), PROCESSORS["qwen3_vl"])


def test_relative_boxes_do_not_depend_on_the_size_and_unknown_models_are_refused():
    processor = PROCESSORS["qwen3_vl"]
    assert find_frame((640, 480), form="thousandths", image_processor=processor) == (1000, 1000)
    assert find_coordinate_form("qwen2_vl") == "thousandths"
    with pytest.raises(ModelError, match="in what coordinates llava writes boxes"):
        find_coordinate_form("llava")


coordinates = st.floats(0, 300)


labels = st.sampled_from(["", "red ball", "[x", ", a", " ", "\n]", "3 cars", "红色球"])


@given(coordinates, coordinates, coordinates, coordinates, labels)
def test_written_boxes_are_read_again_within_half_a_unit(
    x1: float, y1: float, width: float, height: float, label: str
):
    frame = (300, 280)
    box = Box(x1, y1, x1 + width + 0.01, y1 + height + 0.01, label)
    text = write_box(box, frame=frame)
    (read,) = BoxParser(words=True).parse(text).value
    assert 0 <= read.x1 < read.x2 <= frame[0]
    assert 0 <= read.y1 < read.y2 <= frame[1]
    if width >= 1 and height >= 1 and box.x2 <= frame[0] and box.y2 <= frame[1]:
        assert np.abs(list_sides(read) - list_sides(box)).max() <= 0.5


def test_labels_cannot_end_a_box_early():
    assert write_box(Box(1, 2, 3.6, 4, "a [red]\nsign"), frame=(9, 9)) == "[1,2,4,4 a (red) sign]"
    assert write_box(Box(0.2, 8.9, 0.3, 9), frame=(9, 9)) == "[0,8,1,9]"
