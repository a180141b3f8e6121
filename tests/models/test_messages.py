"""Pictures among the words are rendered, encoded and counted as the processor does by itself."""

from pathlib import Path

import pytest
import trl
from mixed_prompts import encode_by_processor

from groupwise.core import Message, ModelError, make_example, open_picture
from groupwise.models import build_messages, load_policy, make_token_counter

PUBLISHED = Path(trl.__file__).parent / "chat_templates"


@pytest.fixture(params=["tiny", "qwen2_5_vl", "qwen3_vl"])
def policy(request, vision_folder):
    """The tiny policy with its own chat template or a published one."""
    policy = load_policy(vision_folder)
    if request.param != "tiny":
        path = PUBLISHED / f"{request.param}.jinja"
        policy.processor.chat_template = path.read_text(encoding="utf-8")
    return policy


def test_mixed_prompts_are_those_of_the_processor(policy, mixed_examples, picture_examples):
    count = make_token_counter(policy.processor, has_vision=True)
    for example in [*mixed_examples, *picture_examples[:2]]:
        pictures = [open_picture(picture) for picture in example.pictures]
        text = policy.render_prompt(example)
        rendered = policy.processor(text=[text], images=[pictures], return_tensors="pt")
        expected = encode_by_processor(policy.processor, example)
        assert rendered.keys() == expected.keys() >= {"input_ids", "pixel_values"}
        for name, values in expected.items():
            assert rendered[name].equal(values), name
        assert count(example) == expected["input_ids"].shape[1]


def test_a_text_policy_refuses_pictures_wherever_they_are(text_folder, mixed_examples):
    policy = load_policy(text_folder)
    for example in mixed_examples:
        with pytest.raises(ModelError, match="takes no pictures"):
            policy.render_prompt(example)


def test_contents_are_texts_but_where_a_user_shows_pictures(picture_examples):
    [picture] = picture_examples[0].pictures
    words = [Message("system", "s"), Message("user", "q"), Message("assistant", "a")]
    bare = make_example([*words, Message("user", "r")], cluster="g")
    assert [one["content"] for one in build_messages(bare)] == ["s", "q", "a", "r"]
    shown = make_example([*words, Message("user", ["r", picture])], cluster="g")
    assert [one["content"] for one in build_messages(shown)] == [
        "s",
        [{"type": "text", "text": "q"}],
        "a",
        [{"type": "text", "text": "r"}, {"type": "image"}],
    ]
