from types import SimpleNamespace

import pytest
from PIL import Image
from transformers import VideoLlama3ImageProcessor

from groupwise.training.fast.pictures import process_pictures_once

SIZES = [(16, 16), (24, 40), (16, 16), (8, 56)]


@pytest.fixture
def processor(policies):
    return policies.find_processor("qwen2_5_vl")


@pytest.fixture
def count_processed(processor, monkeypatch):
    """How many pictures the image processor itself was given."""
    given = []
    own = type(processor.image_processor).__call__

    def call(self, images, *more, **named):
        given.extend(images if isinstance(images, list) else [images])
        return own(self, images, *more, **named)

    monkeypatch.setattr(type(processor.image_processor), "__call__", call)
    return lambda: len(given)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].equal(other[name]), name


def test_equal_pictures_are_processed_once(processor, count_processed, grpo):
    pictures = [grpo.draw_picture(seed % 3, size) for seed, size in enumerate(SIZES)]
    nested = [[pictures[0], pictures[1]], [pictures[2].copy()], [pictures[3], pictures[1].copy()]]
    flat = [picture for row in nested for picture in row]
    plain = processor.image_processor(flat, return_tensors="pt")
    processed = count_processed()
    with process_pictures_once(processor):
        assert_same(plain, processor.image_processor(images=nested, return_tensors="pt"))
        assert count_processed() - processed == 4
        assert_same(plain, processor.image_processor(flat, return_tensors="pt"))
        assert count_processed() - processed == 4


def test_the_whole_processor_gives_the_same(processor, grpo):
    pictures = [[grpo.draw_picture(n, SIZES[n])] for n in (0, 1)]
    text = ["<|image_pad|> one", "two <|image_pad|> or more"]
    given = {"images": pictures, "text": text, "padding": True, "return_tensors": "pt"}
    plain = processor(**given)
    with process_pictures_once(processor):
        assert_same(plain, processor(**given))


def test_pictures_are_told_apart_by_all_that_is_seen(processor):
    """Size, mode and palette, not only bytes."""
    grey = Image.new("L", (16, 16), 7)
    pictures = [grey, Image.new("L", (32, 8), 7)]
    for colour in ((255, 0, 0), (0, 0, 255)):
        picture = Image.new("P", (16, 16), 7)
        picture.putpalette(colour * 256)
        pictures.append(picture)
    plain = [processor.image_processor(p, return_tensors="pt") for p in pictures]
    with process_pictures_once(processor):
        for expected, picture in zip(plain, pictures, strict=True):
            assert_same(expected, processor.image_processor(picture, return_tensors="pt"))


def test_what_is_no_pillow_picture_is_processed_too(processor, grpo):
    import numpy as np

    array = np.asarray(grpo.draw_picture(0, (16, 24)))
    plain = processor.image_processor([array], return_tensors="pt")
    with process_pictures_once(processor):
        assert_same(plain, processor.image_processor([array], return_tensors="pt"))


def test_the_processor_is_itself_again(processor):
    own = processor.image_processor

    def fail():
        with process_pictures_once(processor):
            assert processor.image_processor is not own
            assert processor.image_processor.merge_size == own.merge_size
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert processor.image_processor is own


def test_a_processor_with_other_outputs_is_left_alone():
    """It cuts pictures into patches as well, and says more, or something else, about them."""
    own = VideoLlama3ImageProcessor()
    assert hasattr(own, "merge_size")
    processor = SimpleNamespace(image_processor=own)
    with process_pictures_once(processor):
        assert processor.image_processor is own


def test_a_tokenizer_has_no_pictures(policies):
    tokenizer = policies.find_processor("qwen2")
    with process_pictures_once(tokenizer):
        assert not hasattr(tokenizer, "image_processor")
