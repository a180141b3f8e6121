"""Supervised fine-tuning: its rows, their order and pictures, and what it learns."""

import re
import threading
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed_prompts import encode_by_processor
from PIL import Image, ImageChops
from pydantic import Field
from training_job import teach

from groupwise.core import TrainingError, read_jsonl
from groupwise.data.augmentation import PictureAugmentation, augment_picture
from groupwise.models.policy import load_policy
from groupwise.models.trainable import LoraSettings, TrainableSettings, list_trainable
from groupwise.training.settings import GrpoSettings, SftRow, SftSettings, ValidationSettings
from groupwise.training.sft import (
    IGNORED,
    ReadAhead,
    RowCollator,
    lay_out_rows,
    make_control_settings,
)


def test_rows_of_metrics_and_what_trains(vision_folder, picture_examples, tmp_path, capfd):
    settings = TrainableSettings(method="full")
    trained = teach(
        vision_folder, picture_examples, tmp_path, trainable=settings, log_every_steps=1, epochs=2
    )
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["epoch"] for row in rows] == [0.5, 1.0, 1.5, 2.0]
    documented = {"step", "epoch", "loss", "learning_rate", "grad_norm", "tokens_per_s", "step_s"}
    assert all(set(row) == documented | {"entropy", "mean_token_accuracy"} for row in rows)
    assert all(row["tokens_per_s"] > 0 and row["step_s"] > 0 for row in rows)
    printed = capfd.readouterr()
    assert printed.out == ""
    *table, last = printed.err.splitlines()
    assert re.fullmatch(r"  \S+: 4 of 4 steps(?:, in \d+ s)?, loss [\d.]+", last)
    # A slow machine shows steps in between.
    table = "\n".join(line for line in table if " of 4 steps" not in line)
    for noise in ("loss", "shards", "Loading weights", "Warning", "pin_memory"):
        assert noise not in table
    before, after = load_policy(vision_folder).model.state_dict(), trained.model.state_dict()
    changed = {name for name in before if not before[name].equal(after[name])}
    parameters = {name for name, _ in trained.model.named_parameters()}
    assert changed & parameters == list_trainable(trained.model)
    assert not [name for name in changed if "visual" in name]


@pytest.mark.parametrize(
    ("kind", "smoothing"),
    [
        ("text", 0.1),
        ("vision", 0.0),
        pytest.param("text", 0.0, marks=pytest.mark.slow),
        pytest.param("vision", 0.1, marks=pytest.mark.slow),
    ],
)
def test_the_loss_is_a_mean_over_the_tokens_of_a_step(request, tmp_path, kind, smoothing):
    """Not of means over parts of it, which processes or micro-batches would have."""
    examples = request.getfixturevalue("picture_examples" if kind == "vision" else "text_examples")
    targets = ["合格" * (1 + place % 5) for place in range(8)]
    found = []
    for size in (4, 1):
        folder = tmp_path / str(size)
        teach(
            request.getfixturevalue(f"{kind}_folder"),
            examples[:8],
            folder,
            targets=targets,
            batch_size=size,
            gradient_accumulation=4 // size,
            label_smoothing=smoothing,
            log_every_steps=1,
            trainable=TrainableSettings(method="full"),
        )
        found.append(read_jsonl(folder / "metrics.jsonl")[0])
    for name in ("loss", "grad_norm"):
        assert found[0][name] == pytest.approx(found[1][name], rel=2e-5)


def test_a_training_that_breaks_down_says_so(text_folder, text_examples, tmp_path, monkeypatch):
    from trl.trainer.sft_trainer import SFTTrainer

    compute = SFTTrainer.compute_loss

    def break_down(self, *given, **named):
        loss = compute(self, *given, **named)
        return loss * float("nan") if self.state.global_step == 1 else loss

    monkeypatch.setattr(SFTTrainer, "compute_loss", break_down)
    with pytest.raises(TrainingError, match=r"broke down at step 2; got loss.* not a number"):
        teach(text_folder, text_examples, tmp_path, log_every_steps=1)


def test_lora_learns_its_targets(text_folder, text_examples, tmp_path):
    settings = {"epochs": 4, "learning_rate": 2e-3, "log_every_steps": 5}
    trained = teach(text_folder, text_examples, tmp_path, **settings)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 5, 8]  # also the first step and the last
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.1
    with trained.model.disable_adapter():
        base = {
            name.replace(".base_layer", ""): v for name, v in trained.model.state_dict().items()
        }
    for name, value in load_policy(text_folder).model.state_dict().items():
        assert torch.equal(base[f"base_model.model.{name}"], value)


@pytest.mark.parametrize(
    "given", [{"warmup_steps": 2}, pytest.param({"warmup_steps": 100}, marks=pytest.mark.slow)]
)
def test_a_warmup_that_takes_all_steps_stops_it(given, text_folder, text_examples, tmp_path):
    with pytest.raises(TrainingError, match=r"never reach its peak; got .* training of 2;"):
        teach(text_folder, text_examples, tmp_path, **given)
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"warmup_steps": 1},
        {"warmup_share": 0.05, "batch_size": 8},  # of a single step a share would be all of it
        pytest.param({"warmup_steps": 100, "scheduler": "constant"}, marks=pytest.mark.slow),
    ],
)
def test_a_shorter_warmup_reaches_the_peak(given, text_folder, text_examples, tmp_path):
    teach(text_folder, text_examples, tmp_path, learning_rate=1e-3, log_every_steps=1, **given)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert max(row["learning_rate"] for row in rows) == 1e-3
    assert rows[-1]["step"] == len(text_examples) // given.get("batch_size", 4)


def test_checkpointing_of_an_adapter_asks_for_no_gradient_of_inputs(
    text_folder, text_examples, tmp_path
):
    kept = teach(text_folder, text_examples, tmp_path / "kept")
    again = teach(text_folder, text_examples, tmp_path / "again", gradient_checkpointing=True)
    assert not again.model.get_input_embeddings()._forward_hooks
    weights = again.model.state_dict()
    assert all(weights[name].equal(value) for name, value in kept.model.state_dict().items())


TARGETS = [
    *("yes", "Screen: 浏览器. Classification: no", "", "\n\n lines"),
    *("no 🙂", "y", "n", "x" * 40),
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


def test_rows_that_cannot_be_laid_out_are_refused(text_examples):
    with pytest.raises(TrainingError, match="no row says that it is easy or hard"):
        lay_out_rows(make_rows(text_examples), num_epochs=1, seed=0, easy_first=True)
    with pytest.raises(TrainingError, match="no rows to train on"):
        lay_out_rows(lambda _: [], num_epochs=2, seed=0)
    with pytest.raises(TrainingError, match="epochs differ"):
        lay_out_rows(lambda e: make_rows(text_examples[: e + 1])(e), num_epochs=2, seed=0)


PATIENCE_S = 5


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=6))
def test_batches_are_those_that_were_asked_for(asked):
    """Whatever the order, and whatever was begun."""
    read = ReadAhead(lambda places: [place * 10 for place in places], num_rows=31)
    for places in asked:
        assert read(places) == [place * 10 for place in places]


def test_the_next_batch_is_made_meanwhile():
    """Nobody asks for it, and it is made once."""
    made, all_made = [], threading.Event()

    def collate(places):
        made.append(list(places))
        if len(made) == 3:
            all_made.set()
        return places

    read = ReadAhead(collate, num_rows=5)
    read([0, 1])
    read([2, 3])
    assert all_made.wait(PATIENCE_S)
    assert made == [[0, 1], [2, 3], [4]]
    read([4])
    assert len(made) == 3


def test_an_error_is_raised_where_its_batch_is_asked_for():
    def collate(places):
        if 2 in places:
            raise ValueError("torn picture")
        return places

    read = ReadAhead(collate, num_rows=4)
    assert read([0, 1]) == [0, 1]
    with pytest.raises(ValueError, match="torn picture"):
        read([2, 3])


NEUTRAL = dict.fromkeys(
    ("brightness", "contrast", "saturation", "hue", "crop", "shift", "grayscale"), 0.0
)


@pytest.fixture(scope="module")
def picture():
    gradients = [Image.linear_gradient("L").resize((61, 47)).rotate(turn) for turn in (0, 90, 180)]
    return Image.merge("RGB", gradients)


def is_same(one, other):
    return one.size == other.size and ImageChops.difference(one, other).getbbox() is None


@given(st.integers(0, 2**31 - 1))
@settings(max_examples=20)
def test_seed_decides_and_size_stays(picture, seed):
    strong = PictureAugmentation(hue=0.3, shift=0.2, grayscale=0.5)
    first = augment_picture(picture, strong, seed=seed)
    assert (first.size, first.mode) == (picture.size, "RGB")
    assert is_same(first, augment_picture(picture, strong, seed=seed))
    assert not is_same(first, picture)


def test_other_seeds_give_other_pictures(picture):
    found = {augment_picture(picture, PictureAugmentation(), seed=s).tobytes() for s in range(10)}
    assert len(found) == 10


@given(st.integers(0, 2**31 - 1))
@settings(max_examples=20)
def test_neutral_settings_change_nothing(picture, seed):
    assert is_same(augment_picture(picture, PictureAugmentation(**NEUTRAL), seed=seed), picture)


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        ("brightness", 0.5),
        ("contrast", 0.5),
        ("saturation", 0.9),
        ("hue", 0.5),
        ("crop", 0.3),
        ("shift", 0.3),
        ("grayscale", 1.0),
    ],
)
def test_each_setting_does_something(picture, name, amount):
    settings = PictureAugmentation(**(NEUTRAL | {name: amount}))
    assert not is_same(augment_picture(picture, settings, seed=4), picture)


def test_grayscale_takes_all_colour_and_shift_leaves_grey_behind(picture):
    grey = augment_picture(picture, PictureAugmentation(**(NEUTRAL | {"grayscale": 1.0})), seed=0)
    red, green, blue = grey.split()
    assert red.tobytes() == green.tobytes() == blue.tobytes()
    white = Image.new("RGB", (100, 100), "white")
    moved = augment_picture(white, PictureAugmentation(**(NEUTRAL | {"shift": 0.4})), seed=0)
    assert {color for _, color in moved.getcolors()} >= {(128, 128, 128), (255, 255, 255)}


class WarmupSettings(SftSettings):
    num_groups: int = Field(default=3, ge=1)


def test_the_control_trains_as_long_and_as_fast_as_grpo_and_else_as_the_warm_up():
    trainable = TrainableSettings(lora=LoraSettings(rank=4, last_blocks=2))
    kept = {
        "batch_size": 3,
        "scheduler": "cosine",
        "save_every_steps": 5,
        "heldout_every_steps": 6,
        "augmentation": PictureAugmentation(hue=0.1),
    }
    taken = {"epochs": 2, "learning_rate": 3e-6, "trainable": trainable}
    sft = WarmupSettings(epochs=7, learning_rate=1e-2, **kept)
    control = make_control_settings(sft, GrpoSettings(scheduler="constant", **taken))
    assert control == SftSettings(**kept, **taken)


def test_the_control_chooses_on_validation_where_grpo_does():
    looks, seen = {"validation": ValidationSettings(every_steps=4)}, {"heldout_every_steps": 6}
    control = make_control_settings(SftSettings(**seen), GrpoSettings(**looks))
    assert (control.validation, control.heldout_every_steps) == (looks["validation"], None)
    control = make_control_settings(SftSettings(**looks), GrpoSettings(**seen))
    assert (control.validation, control.heldout_every_steps) == (None, None)
