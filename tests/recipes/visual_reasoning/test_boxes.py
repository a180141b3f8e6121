"""Boxes, frames and rows of visual_reasoning."""

import random
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from plan_keys import read_config
from rectangles import draw_rectangle, find_rectangle, list_sides, show
from statement_sets import make_row
from tables import read_tables
from transformers import Qwen2VLImageProcessorPil

from groupwise.core import (
    Completion,
    DataError,
    Message,
    ModelError,
    make_example,
    open_picture,
    read_json,
    write_json,
)
from groupwise.data.examples import read_examples
from groupwise.models.base_model import open_image_processor
from groupwise.models.processor import PictureProcessor
from groupwise.models.prompts import count_picture_tokens
from groupwise.models.tokenizing import train_tokenizer
from groupwise.rewards import Box, BoxIou, BoxParser
from groupwise_recipes.visual_reasoning.asking import prepare_rows
from groupwise_recipes.visual_reasoning.boxes import (
    CoordinateForm,
    convert_box,
    find_coordinate_form,
    find_frame,
    find_seen_size,
    write_box,
)
from groupwise_recipes.visual_reasoning.measuring import measure_boxes
from groupwise_recipes.visual_reasoning.rows import (
    Reasoning,
    RowError,
    collect_rows,
    make_box,
    read_rows,
    write_rows,
)
from groupwise_recipes.visual_reasoning.teaching import place_boxes, write_target

TABLES = read_tables(__file__)

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
def test_written_boxes_earn_what_they_should_when_read_in_their_frame(model_type):
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
def test_the_seen_size_is_the_one_by_which_tokens_are_counted(width, height):
    for processor in (*PROCESSORS.values(), Qwen2VLImageProcessorPil()):
        token = processor.patch_size * processor.merge_size
        if max(width, height) > 200 * min(width, height):
            with pytest.raises(DataError, match=f"of that shape; got {width}x{height} pixels"):
                find_seen_size((width, height), processor)
            continue
        columns, rows = (side // token for side in find_seen_size((width, height), processor))
        assert columns * rows == count_picture_tokens(processor, width, height)


def test_relative_boxes_do_not_depend_on_the_size_and_what_is_unknown_is_refused():
    processor = PROCESSORS["qwen3_vl"]
    assert find_frame((640, 480), form="thousandths", image_processor=processor) == (1000, 1000)
    assert find_coordinate_form("qwen2_vl") == "thousandths"
    with pytest.raises(ModelError, match="in what coordinates llava writes boxes"):
        find_coordinate_form("llava")
    with pytest.raises(DataError, match="got 0x10 pixels"):
        find_seen_size((0, 10), processor)


coordinates = st.floats(0, 300)


labels = st.sampled_from(["", "red ball", "[x", ", a", " ", "\n]", "3 cars", "红色球"])


@given(coordinates, coordinates, coordinates, coordinates, labels)
def test_written_boxes_are_read_again_within_half_a_unit(x1, y1, width, height, label):
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


SIZES = [(640, 480), (97, 301), (1200, 130), (333, 334), (60, 45)]
MAX_PIXELS = 131072
ORIENTATION, TURNED = 0x0112, 6


def make_rows(folder):
    """Return rows about white things of every size."""
    found = []
    for size in SIZES:
        name = f"{size[0]}x{size[1]}"
        picture, box = draw_rectangle(random.Random(name), size)
        picture.save(folder / f"{name}.png")
        path, things = folder / f"{name}.png", (replace(box, label="white thing"),)
        shown = {"picture": path, "picture_size": size, "boxes": things}
        found.append(make_row(name, "The thing is white.", True, split="test", **shown))
    return found


def prepare(folder, rows, base="tiny-qwen2.5-vl"):
    """Return what ``prepare`` writes, with the same rows under other clusters to train on."""
    for split in ("train", "validation", "test"):
        own = [replace(row, cluster=f"{split} {row.cluster}") for row in rows]
        write_rows(folder / f"{split}.jsonl", own)
    told = {"data.rows.path": folder, "model.base": base, "model.max_pixels": MAX_PIXELS}
    changes = ["vision_epochs=0", "data.drawn=null", "data.warmup_share=0.5"]
    changes += [f"{k}={v}" for k, v in told.items()]
    prepare_rows(read_config("visual_reasoning", "grounding", *changes), folder / "out")
    return folder / "out"


def make_base(folder, model_type, patch_size):
    """Return a base of that type without weights."""
    made = Qwen2VLImageProcessorPil(patch_size=patch_size)
    tokenizer = train_tokenizer([])
    processor = PictureProcessor(made, tokenizer, chat_template="", model_type=model_type)
    processor.save_pretrained(folder)
    write_json(folder / "config.json", {"model_type": model_type, "vision_config": {}})
    return str(folder)


@pytest.mark.parametrize("model_type", ["", "qwen2_5_vl", "qwen3_vl"])
def test_reference_boxes_are_where_the_model_sees_the_thing(tmp_path, model_type):
    base, is_relative = "tiny-qwen2.5-vl", model_type == "qwen3_vl"
    if model_type:
        base = make_base(tmp_path / "base", model_type, 16 if is_relative else 14)
    examples = read_examples(prepare(tmp_path, make_rows(tmp_path), base) / "test.jsonl")
    _, processor = open_image_processor(base, max_pixels=MAX_PIXELS)
    assert len(examples) == len(SIZES)
    sizes = set[tuple[int, int]]()
    for example in examples:
        seen = show(open_picture(example.pictures[0]), processor)
        size = seen.shape[1], seen.shape[0]
        [box], frame = place_boxes(example)
        assert frame == ((1000, 1000) if is_relative else size)
        placed = list_sides(box.scale(size[0] / frame[0], size[1] / frame[1]))
        assert np.abs(placed - list_sides(find_rectangle(seen))).max() <= 1
        target = write_target(example, "boxes")
        assert measure_boxes(example, target)["box_iou"] > 0.9
        sizes.add(size)
    assert len(sizes - set(SIZES)) >= 4


def test_boxes_go_along_with_a_smaller_copy_and_not_with_another_shape(tmp_path):
    first, second, third, *rest = make_rows(tmp_path)
    for row, size in ((first, (320, 240)), (second, (301, 97))):
        assert row.picture is not None
        open_picture(row.picture).resize(size).save(row.picture)
    assert third.picture is not None
    exif = Image.Exif()
    exif[ORIENTATION] = TURNED
    Image.new("RGB", (130, 1200)).save(tmp_path / "turned.jpg", exif=exif)
    third = replace(third, picture=tmp_path / "turned.jpg")
    out = prepare(tmp_path, [first, second, third, *rest])
    examples = read_examples(out / "test.jsonl")
    assert len(examples) == 4
    assert examples[0].fields["seen_size"] == [256, 256]  # the original: 384, 256
    source = read_json(out / "source.json", dict)
    assert source["drops"]["counts"] == {"picture of another shape": 3}


def test_a_base_without_eyes_is_refused_where_boxes_are(tmp_path):
    with pytest.raises(ModelError, match="takes no pictures"):
        prepare(tmp_path, make_rows(tmp_path), "tiny-qwen2")


CUP = "The cup is on the table."
PARTNER = {
    "partner": "1",
    "cluster": "picture",
    "split": "train",
    "text": CUP,
    "answers": ["False"],
}
CHOICES = {"A": "a cab", "B": "a train", "C": "a cab"}


def row(**values):
    given = {"number": 1, "text": CUP, "answer": True, "cluster": "picture"}
    return make_row(**{**given, **values})


@pytest.mark.parametrize(("values", "reason"), TABLES["contradictions"])
def test_a_row_that_contradicts_itself_is_refused(values, reason):
    if "boxes" in values:
        values = {**values, "boxes": tuple(Box(*one) for one in values["boxes"])}
    with pytest.raises(RowError) as caught:
        row(**values)
    assert caught.value.reason == reason
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_every_record_is_a_row_or_a_drop_and_nothing_left_is_refused():
    def collect(*records):
        return collect_rows(records, make=lambda values: row(**values))

    loaded = collect(
        ("line 1", {}), ("line 2", {"text": ""}), ("line 3", {}), ("line 4", {"id": "2"})
    )
    assert [one.id for one in loaded.rows] == ["1", "2"]
    assert loaded.drops.counts == {"no text": 1, "repeated id": 1}
    assert [drop.where.split(":")[0] for drop in loaded.drops.rows] == ["line 2", "line 3"]
    assert (loaded.num_records, loaded.num_without_boxes) == (4, 2)
    nothing = r"no row that can be used; got \{'no text': 1\}, the first"
    with pytest.raises(DataError, match=nothing):
        collect(("line 1", {"text": ""}))
    with pytest.raises(DataError, match="no row that can be used; got none"):
        collect()


@pytest.mark.parametrize("other", TABLES["halves"])
def test_half_a_pair_is_dropped(other):
    second = {"id": "2", "answers": frozenset({"False"}), **other}
    records = [("first", {"partner": "2"}), ("second", second), ("alone", {"id": "3"})]
    loaded = collect_rows(records, make=lambda values: row(**values))
    assert loaded.drops.counts["half a pair"] >= 1
    assert "1" not in [one.id for one in loaded.rows]
    whole = [("first", {"partner": "2"}), ("second", second | PARTNER)]
    assert len(collect_rows(whole, make=lambda values: row(**values)).rows) == 2


def test_rows_come_back_from_a_file_and_a_damaged_one_is_one_sentence(tmp_path):
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
    path = tmp_path / "rows.jsonl"
    write_rows(path, rows)
    assert read_rows(path) == rows
    assert [one.answer for one in rows] == ["True", "A,C", "True"]
    assert [one.is_statement for one in rows] == [True, False, True]
    path.write_text(path.read_text().replace('"train"', '"training"', 1))
    with pytest.raises(DataError, match=r"rows\.jsonl row 1 is damaged; got split"):
        read_rows(path)


SIDE = st.floats(-3, 53, allow_nan=False)


@given(st.tuples(SIDE, SIDE, SIDE, SIDE))
def test_a_box_is_inside_or_refused(sides):
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
