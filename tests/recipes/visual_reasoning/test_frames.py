"""Boxes of any data set come to the model where it sees them, through the stage ``prepare``."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rectangles import draw_rectangle, find_rectangle, list_sides, show
from transformers import Qwen2VLImageProcessorPil

from groupwise.core import ModelError, load_config, open_picture, read_json, write_json
from groupwise.data import read_examples
from groupwise.models import PictureProcessor, open_image_processor, train_tokenizer
from groupwise_recipes.visual_reasoning.asking import prepare_rows
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.measuring import measure_boxes
from groupwise_recipes.visual_reasoning.rows import VisualRow, write_rows
from groupwise_recipes.visual_reasoning.teaching import place_boxes, write_target

GROUNDING = (
    Path(__file__).parents[3] / "src/groupwise_recipes/visual_reasoning/configs/grounding.yaml"
)
SIZES = [(640, 480), (97, 301), (1200, 130), (333, 334), (60, 45)]
MAX_PIXELS = 131072
ORIENTATION, TURNED = 0x0112, 6


def make_rows(folder: Path) -> list[VisualRow]:
    """Return rows about white things of every size."""
    found: list[VisualRow] = []
    for size in SIZES:
        name = f"{size[0]}x{size[1]}"
        picture, box = draw_rectangle(random.Random(name), size)
        picture.save(folder / f"{name}.png")
        row = VisualRow(
            id=name,
            source="made",
            split="test",
            text="The thing is white.",
            answers=frozenset({"True"}),
            cluster=name,
            picture=folder / f"{name}.png",
            picture_size=size,
            boxes=(replace(box, label="white thing"),),
        )
        found.append(row)
    return found


def prepare(folder: Path, rows: list[VisualRow], base: str = "tiny-qwen2.5-vl") -> Path:
    """Return what ``prepare`` writes, with the same rows under other clusters to train on."""
    for split in ("train", "validation", "test"):
        own = [replace(row, cluster=f"{split} {row.cluster}") for row in rows]
        write_rows(folder / f"{split}.jsonl", own)
    told = {"data.rows.path": folder, "model.base": base, "model.max_pixels": MAX_PIXELS}
    changes = [
        "vision_epochs=0",
        "data.drawn=null",
        "data.warmup_share=0.5",
        *(f"{k}={v}" for k, v in told.items()),
    ]
    prepare_rows(load_config(VisualConfig, GROUNDING, overrides=changes), folder / "out")
    return folder / "out"


def make_base(folder: Path, model_type: str, patch_size: int) -> str:
    """Return a base of that type without weights."""
    made = Qwen2VLImageProcessorPil(patch_size=patch_size)
    tokenizer = train_tokenizer([])
    processor = PictureProcessor(made, tokenizer, chat_template="", model_type=model_type)
    processor.save_pretrained(folder)
    write_json(folder / "config.json", {"model_type": model_type, "vision_config": {}})
    return str(folder)


@pytest.mark.parametrize("model_type", ["", "qwen2_5_vl", "qwen3_vl"])
def test_reference_boxes_are_where_the_model_sees_the_thing(
    tmp_path: Path, model_type: str
) -> None:
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


def test_boxes_go_along_with_a_smaller_copy_and_not_with_another_shape(tmp_path: Path) -> None:
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
    assert read_json(out / "source.json", dict)["drops"]["counts"] == {
        "picture of another shape": 3
    }


def test_a_base_without_eyes_is_refused_where_boxes_are(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="takes no pictures"):
        prepare(tmp_path, make_rows(tmp_path), "tiny-qwen2")
