"""A tiny base's vision encoder learns what is in pictures, and nothing else of it changes."""

import pytest
import torch
from PIL import Image

from groupwise.core import ModelError, open_picture, read_picture
from groupwise.models.policy import load_policy
from groupwise.models.tiny import write_tiny_policy
from groupwise_recipes.visual_reasoning.vision import SeenPicture, _Reader, pretrain_vision


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Forty pictures with a red or blue half on one side; their size is told of every other."""
    folder, found = tmp_path_factory.mktemp("halves"), []
    for number in range(40):
        color, side = ("red", "blue")[number % 2], ("left", "right")[number // 2 % 2]
        picture = Image.new("RGB", (128, 128), (200, 200, 200 + number))
        picture.paste(color, (64 * (side == "right"), 0, 64 * (side == "right") + 64, 128))
        picture.save(folder / f"{number}.png")
        told = {"size": "large"} if number % 3 else {}
        facts = {"color": color, "side": side, "scene": f"{color} {side}", **told}
        found.append(SeenPicture(read_picture(folder / f"{number}.png"), facts))
    return found


def write_base(folder):
    return write_tiny_policy("tiny-qwen2.5-vl", folder, seed=3)


def test_encoder_learns_what_pictures_show_and_nothing_else_changes(pictures, tmp_path):
    base = write_base(tmp_path / "base")
    before = load_policy(base).model.state_dict()
    lines = []
    rates = pretrain_vision(base, pictures, seed=0, epochs=6, say=lines.append)
    # What has one answer alone is no question.
    assert rates == {"color": 1.0, "scene": 1.0, "side": 1.0}
    # A slow machine adds how long it took.
    assert lines[-1].partition(",")[0] == "12 of 12 steps of the vision encoder"
    after = load_policy(base).model.state_dict()
    changed = {name for name in before if not before[name].equal(after[name])}
    assert changed == {name for name in before if ".visual." in name}


def test_same_seed_gives_the_same_encoder(pictures, tmp_path):
    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        base = write_base(tmp_path / name)
        pretrain_vision(base, pictures[:10], seed=seed, epochs=1)
        found.append(load_policy(base).model.state_dict())
    one, again, other = found
    assert all(one[name].equal(again[name]) for name in one)
    assert any(not one[name].equal(other[name]) for name in one)


@pytest.mark.slow
def test_encoder_is_the_same_whatever_the_number_of_threads(pictures, tmp_path):
    found, before = [], torch.get_num_threads()
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            base = write_base(tmp_path / str(num_threads))
            pretrain_vision(base, pictures, seed=1, epochs=3)  # the last batch has 6 pictures
            found.append(load_policy(base).model.state_dict())
    finally:
        torch.set_num_threads(before)
    one, two = found
    assert all(one[name].equal(two[name]) for name in one)


def test_patches_are_those_of_the_processor(pictures, tmp_path):
    policy = load_policy(write_base(tmp_path))
    reader = _Reader(policy, pictures[:3], {})
    images = [open_picture(pictures[k].picture) for k in (2, 0)]
    right = policy.processor.image_processor(images, return_tensors="pt")
    assert reader.grids[[2, 0]].equal(right["image_grid_thw"])
    assert (reader.take([2, 0]) - right["pixel_values"]).abs().max() < 1e-5


def test_facts_that_never_differ_teach_nothing(pictures, tmp_path):
    same = [SeenPicture(one.picture, {"color": "red"}) for one in pictures]
    with pytest.raises(ModelError, match=r"nothing to teach a vision encoder.*40 pictures"):
        pretrain_vision(write_base(tmp_path), same, seed=0, epochs=1)


def test_a_question_that_no_held_out_picture_answers_has_no_rate(pictures, tmp_path):
    rare = [
        SeenPicture(
            one.picture, {"color": one.facts["color"], **({"rare": str(k)} if k < 2 else {})}
        )
        for k, one in enumerate(pictures)
    ]
    rates = [
        pretrain_vision(write_base(tmp_path / str(seed)), rare, seed=seed, epochs=0)
        for seed in (0, 1, 2)
    ]
    assert {"color"} in [one.keys() for one in rates]
