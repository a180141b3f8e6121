import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops

from groupwise.training import PictureAugmentation, augment_picture

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


def test_grayscale_takes_all_colour(picture):
    grey = augment_picture(picture, PictureAugmentation(**(NEUTRAL | {"grayscale": 1.0})), seed=0)
    red, green, blue = grey.split()
    assert red.tobytes() == green.tobytes() == blue.tobytes()


def test_shift_leaves_grey_behind():
    white = Image.new("RGB", (100, 100), "white")
    moved = augment_picture(white, PictureAugmentation(**(NEUTRAL | {"shift": 0.4})), seed=0)
    assert {color for _, color in moved.getcolors()} >= {(128, 128, 128), (255, 255, 255)}
