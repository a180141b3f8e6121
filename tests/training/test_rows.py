from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_prompts import encode_by_processor

from groupwise.core import TrainingError
from groupwise.models import load_policy
from groupwise.training import PictureAugmentation, RowCollator, SftRow
from groupwise.training.sft import IGNORED, lay_out_rows

TARGETS = [
    "yes",
    "Screen: 浏览器. Classification: no",
    "",
    "\n\n lines",
    "no 🙂",
    "y",
    "n",
    "x" * 40,
]


@pytest.fixture(scope="module")
def vision(vision_folder):
    return load_policy(vision_folder)


@pytest.fixture(scope="module")
def text(text_folder):
    return load_policy(text_folder)


def collate(policy, examples, targets, **settings):
    rows = [SftRow(*pair) for pair in zip(examples, targets, strict=True)]
    collator = RowCollator(policy, **({"augmentation": None, "seed": 0} | settings))
    return collator([(0, number, row) for number, row in enumerate(rows)])


def check_labels(policy, batch, examples, targets):
    end = policy.tokenizer.eos_token_id
    for row, (example, target) in enumerate(zip(examples, targets, strict=True)):
        labels, ids = batch["labels"][row], batch["input_ids"][row]
        length = int(batch["attention_mask"][row].sum())
        wanted = [*policy.tokenizer.encode(target, add_special_tokens=False), end]
        assert labels[labels != IGNORED].tolist() == wanted
        assert labels[length - len(wanted) : length].tolist() == wanted
        assert ids[length - len(wanted) : length].tolist() == wanted
        assert batch["attention_mask"][row, :length].all()
        text = policy.tokenizer.decode(ids[: length - len(wanted)])
        if not example.pictures:
            assert text == policy.render_prompt(example)
        assert text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["vision", "text"])
def test_labels_are_the_target_and_the_end(
    kind, side, vision, text, picture_examples, text_examples, monkeypatch
):
    policy = vision if kind == "vision" else text
    examples = picture_examples if kind == "vision" else text_examples
    monkeypatch.setattr(policy.tokenizer, "padding_side", side)
    batch = collate(policy, examples, TARGETS)
    assert len(set(batch["attention_mask"].sum(1).tolist())) > 3
    check_labels(policy, batch, examples, TARGETS)
    shapes = {batch[name].shape for name in ("input_ids", "labels", "attention_mask")}
    assert len(shapes) == 1
    if kind == "vision":
        is_picture = batch["input_ids"] == policy.processor.image_token_id
        merged = policy.processor.image_processor.merge_size
        assert torch.equal(batch["mm_token_type_ids"] == 1, is_picture)
        assert int(is_picture.sum()) == int(batch["image_grid_thw"].prod(1).sum()) // merged**2


def test_an_unfinished_target_is_taught_without_an_end(text, text_examples):
    rows = [SftRow(text_examples[0], "Task: video.", is_finished=finished) for finished in (0, 1)]
    collator = RowCollator(text, augmentation=None, seed=0)
    batch = collator([(0, number, row) for number, row in enumerate(rows)])
    taught = text.tokenizer.encode("Task: video.", add_special_tokens=False)
    labels = [row[row != IGNORED].tolist() for row in batch["labels"]]
    assert labels == [taught, [*taught, text.tokenizer.eos_token_id]]


def test_rows_without_a_picture_join_those_with_one(vision, picture_examples, text_examples):
    examples = [*picture_examples[:2], *text_examples[:2], *picture_examples[2:6]]
    batch = collate(vision, examples, TARGETS)
    check_labels(vision, batch, examples, TARGETS)
    assert len(batch["image_grid_thw"]) == 6


def test_prompts_are_what_the_processor_makes_of_pictures_among_words(vision, mixed_examples):
    for example in mixed_examples:
        batch = collate(vision, [example], ["yes"])
        expected = encode_by_processor(vision.processor, example)
        length = expected["input_ids"].shape[1]
        check_labels(vision, batch, [example], ["yes"])
        assert batch["input_ids"][:, :length].equal(expected["input_ids"])
        assert (batch["labels"][:, :length] == IGNORED).all()
        for name in ("pixel_values", "image_grid_thw"):
            assert batch[name].equal(expected[name])


@given(st.lists(st.text(max_size=20), min_size=2, max_size=2))
@settings(max_examples=60)
def test_labels_of_any_target(text, text_examples, targets):
    # A special token's name inside a target is that token: no target has one.
    batch = collate(text, text_examples[:2], targets)
    check_labels(text, batch, text_examples[:2], targets)


def test_pictures_change_by_epoch_and_place_only(vision, picture_examples):
    rows = [(0, 1), (0, 1), (1, 1), (0, 2)]
    collator = RowCollator(vision, augmentation=PictureAugmentation(), seed=5)
    row = SftRow(picture_examples[0], "yes")
    pixels = [collator([(epoch, index, row)])["pixel_values"] for epoch, index in rows]
    assert torch.equal(pixels[0], pixels[1])
    assert not torch.equal(pixels[0], pixels[2])
    assert not torch.equal(pixels[0], pixels[3])


def make_rows(examples):
    return lambda epoch: [SftRow(example, str(epoch)) for example in examples]


def test_each_epoch_has_each_row_once(text_examples):
    schedule = lay_out_rows(make_rows(text_examples), num_epochs=3, seed=1)
    orders = []
    for epoch in range(3):
        part = schedule[epoch * 8 : epoch * 8 + 8]
        assert {place for place, _, _ in part} == {epoch}
        assert sorted(index for _, index, _ in part) == list(range(8))
        assert all(row == SftRow(text_examples[index], str(epoch)) for _, index, row in part)
        orders.append([index for _, index, _ in part])
    assert len({tuple(order) for order in orders}) == 3
    assert schedule == lay_out_rows(make_rows(text_examples), num_epochs=3, seed=1)
    assert schedule != lay_out_rows(make_rows(text_examples), num_epochs=3, seed=2)


def test_the_first_epoch_may_go_from_easy_to_hard(text_examples):
    levels = ["hard", "easy", None, "easy", "hard", "easy", "odd", "easy"]
    rows = [
        SftRow(replace(one, fields={**one.fields, "difficulty": level}), "x")
        for one, level in zip(text_examples, levels, strict=True)
    ]
    schedule = lay_out_rows(lambda _: rows, num_epochs=2, seed=1, easy_first=True)
    first = [levels[index] for _, index, _ in schedule[:8]]
    assert first[:4] == ["easy"] * 4
    assert set(first[4:6]) == {None, "odd"}
    assert first[6:] == ["hard"] * 2
    assert schedule[8:] == lay_out_rows(lambda _: rows, num_epochs=2, seed=1)[8:]


def test_easy_rows_first_where_none_is_known_to_be_is_refused(text_examples):
    with pytest.raises(TrainingError, match="no row says that it is easy or hard"):
        lay_out_rows(make_rows(text_examples), num_epochs=1, seed=0, easy_first=True)


def test_no_rows_and_uneven_epochs_are_refused(text_examples):
    with pytest.raises(TrainingError, match="no rows to train on"):
        lay_out_rows(lambda _: [], num_epochs=2, seed=0)
    with pytest.raises(TrainingError, match="epochs differ"):
        lay_out_rows(lambda e: make_rows(text_examples[: e + 1])(e), num_epochs=2, seed=0)
