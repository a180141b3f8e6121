import pytest
from PIL import Image

from groupwise.core import Message, make_example, open_picture, read_picture
from groupwise.models import estimate_picture_tokens, load_policy, make_token_counter


def encode(policy, example):
    pictures = [open_picture(picture) for picture in example.pictures]
    named = {"images": [pictures]} if pictures else {}
    return policy.processor(text=[policy.render_prompt(example)], return_tensors="pt", **named)


@pytest.mark.parametrize("sizes", [(), ((80, 60),), ((500, 31), (30, 200))])
def test_the_counter_is_the_processor(vision_folder, tmp_path, sizes):
    for number, size in enumerate(sizes):
        Image.new("RGB", size).save(tmp_path / f"{number}.png")
    example = make_example(
        [Message("system", "Be brief."), Message("user", "这是什么? What is it? 🙂")],
        cluster="g",
        pictures=[read_picture(tmp_path / f"{number}.png") for number in range(len(sizes))],
    )
    policy = load_policy(vision_folder)
    count = make_token_counter(policy.processor, has_vision=True)
    assert count(example) == encode(policy, example)["input_ids"].shape[1]


def test_text_is_counted_without_pictures(text_folder, text_examples):
    policy = load_policy(text_folder)
    count = make_token_counter(policy.processor, has_vision=False)
    for example in text_examples[:3]:
        assert count(example) == encode(policy, example)["input_ids"].shape[1]


@pytest.mark.parametrize(
    ("width", "height", "tokens"), [(28, 28, 1), (280, 140, 50), (1000, 1000, 49), (5, 5, 1)]
)
def test_estimate_scales_down_to_the_budget(width, height, tokens):
    assert estimate_picture_tokens(width, height, max_pixels=39_200) == tokens
