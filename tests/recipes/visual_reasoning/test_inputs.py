"""Depth pictures and boxes as further inputs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from groupwise.core import load_config, open_picture, read_json
from groupwise.data import read_examples
from groupwise.rewards import Box, BoxParser
from groupwise_recipes.visual_reasoning.asking import prepare_rows
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.inputs import prepare_inputs
from groupwise_recipes.visual_reasoning.rows import RowError, VisualRow, write_rows
from groupwise_recipes.visual_reasoning.task import TASK

CONFIG = Path(__file__).parents[3] / "src/groupwise_recipes/visual_reasoning/configs/transfer.yaml"


def configure(*overrides: str) -> VisualConfig:
    small = ("data.drawn.num_pairs=12", "data.drawn.num_test_pairs=3")
    return load_config(
        VisualConfig, CONFIG, overrides=["model.base=tiny-qwen2.5-vl", *small, *overrides]
    )


def test_depth_is_the_second_picture_and_boxes_end_the_question(tmp_path: Path) -> None:
    plain, more = configure(), configure("inputs=[depth, boxes]")
    prepare_rows(plain, tmp_path / "plain")
    prepare_rows(more, tmp_path / "more")
    pairs = zip(
        *(read_examples(tmp_path / name / "test.jsonl") for name in ("plain", "more")), strict=True
    )
    for one, two in pairs:
        picture, depth = two.pictures
        assert [picture] == list(one.pictures)
        assert set(np.unique(np.asarray(open_picture(depth)))) <= {0, 128, 255}
        question, places = two.prompt[-1].text.rsplit("\n", 1)
        assert question == one.prompt[-1].text
        found = BoxParser(words=True).parse(places).value
        assert found == tuple(Box(*box) for box in two.fields["boxes"])
    assert TASK.estimate(more).tokens_per_prompt > TASK.estimate(plain).tokens_per_prompt


def make_row(folder: Path, number: int, size: tuple[int, int] = (200, 100)) -> VisualRow:
    path, depth = folder / f"{number}.png", folder / f"{number}-depth.png"
    Image.new("RGB", size, (number, 0, 0)).save(path)
    Image.new("L", size, number).save(depth)
    return VisualRow(
        id=str(number),
        source="made",
        split="train",
        text="The cup is left of the box.",
        answers=frozenset({"True" if number % 2 else "False"}),
        cluster=str(number),
        picture=path,
        depth=depth,
        picture_size=(400, 200),
        boxes=(Box(100, 50, 200, 150, "cup"), Box(300, 20, 400, 200, "box")),
        relation="left of",
    )


def test_boxes_are_written_as_the_model_counts_and_rows_without_inputs_are_dropped(
    tmp_path: Path,
) -> None:
    for offset, split in enumerate(("train", "validation", "test")):
        rows = [make_row(tmp_path, 10 * offset + n) for n in range(8)]
        rows[0] = replace(rows[0], depth=None)
        rows[1] = replace(rows[1], boxes=None)
        write_rows(tmp_path / f"{split}.jsonl", rows)
    places = ("data.drawn=null", f"data.rows.path={tmp_path}", "model.max_pixels=65536")
    prepare_rows(configure(*places, "inputs=[depth, boxes]"), tmp_path / "out")
    drops = read_json(tmp_path / "out" / "source.json", dict)["drops"]["counts"]
    assert drops == {"no boxes to show": 3, "no depth picture": 3}
    for example in read_examples(tmp_path / "out" / "test.jsonl"):
        width, height = example.fields["seen_size"]
        assert (width, height) != (400, 200)
        line = example.prompt[-1].text.splitlines()[-1]
        first = f"[{width // 4},{height // 4},{width // 2},{3 * height // 4} cup]"
        assert line.startswith(first), line


@pytest.mark.parametrize(("kind", "end"), [(np.float32, "tiff"), (np.uint16, "png")])
def test_depth_of_more_than_8_bits_is_stretched(tmp_path: Path, kind: type, end: str) -> None:
    row = make_row(tmp_path, 1)
    depth = tmp_path / f"depth.{end}"
    values = np.linspace(2.5, 20002.5, 20000).astype(kind).reshape(100, 200)
    Image.fromarray(values).save(depth)
    shown = prepare_inputs(replace(row, depth=depth), ("depth",), tmp_path / "stored")
    assert shown.depth is not None
    seen = np.asarray(Image.open(shown.depth))
    assert (seen.dtype, seen.min(), seen.max(), seen.shape) == (np.uint8, 0, 255, (100, 200))
    assert (np.diff(seen.reshape(-1).astype(int)) >= 0).all()
    assert prepare_inputs(row, ("depth",), tmp_path) == row
    assert prepare_inputs(replace(row, depth=None), (), tmp_path).depth is None
    with pytest.raises(RowError, match="has no depth picture"):
        prepare_inputs(replace(row, depth=None), ("depth",), tmp_path)


def test_boxes_that_are_shown_are_not_paid_for() -> None:
    with pytest.raises(Exception, match=r"rewards\.box_iou would pay for copying"):
        configure("inputs=[boxes]", "rewards.box_iou=0.5")
