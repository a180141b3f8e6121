"""What is known of a base model without loading its weights."""

import shutil

import pytest
from PIL import Image

from groupwise.core import Message, ModelError, make_example, read_picture
from groupwise.models import (
    ModelShape,
    count_blocks,
    find_num_blocks,
    find_weights,
    load_policy,
    open_processor,
    open_token_counter,
)

GIVEN = ModelShape(num_parameters=7, num_blocks=2)


def test_blocks_are_those_of_the_loaded_model(vision_folder):
    found = find_num_blocks(str(vision_folder), GIVEN)
    assert found == count_blocks(load_policy(vision_folder).model)


def test_a_model_that_is_not_at_hand_has_the_given_blocks(tmp_path):
    for base in (str(tmp_path / "gone"), "tiny-qwen2.5-vl"):
        assert find_num_blocks(base, GIVEN) == 2
        assert find_num_blocks(base) is None


def test_a_folder_of_a_tiny_model_s_name_is_not_that_model(vision_folder, tmp_path, monkeypatch):
    shutil.copytree(vision_folder, tmp_path / "tiny-qwen2.5-vl")
    monkeypatch.chdir(tmp_path)
    assert find_num_blocks("./tiny-qwen2.5-vl") is not None
    assert find_num_blocks("tiny-qwen2.5-vl") is None


@pytest.fixture
def example(tmp_path):
    """A prompt with a picture that does not fit into one token of the tiny policy."""
    Image.new("RGB", (256, 128)).save(tmp_path / "wide.png")
    picture = read_picture(tmp_path / "wide.png")
    return make_example([Message("user", "这是什么?")], cluster="g", pictures=[picture])


def test_the_processor_is_that_of_the_policy(vision_folder, text_folder):
    for folder in (vision_folder, text_folder):
        policy, found = load_policy(folder), open_processor(folder)
        assert type(found) is type(policy.processor)
        assert found.chat_template == policy.processor.chat_template


def test_pictures_count_for_those_who_take_them(vision_folder, text_folder, example):
    bare = example.with_pictures(())
    seen, unseen = open_token_counter(vision_folder), open_token_counter(text_folder)
    assert seen(example) > seen(bare)
    assert unseen(example) == unseen(bare)


def test_pictures_are_scaled_down(vision_folder, example):
    whole, half = (
        open_token_counter(vision_folder, max_pixels=limit) for limit in (2 * 128**2, 128**2)
    )
    assert whole(example) == half(example) + 1


def test_weights_are_where_the_model_is(vision_folder):
    assert find_weights(vision_folder) == vision_folder
    assert find_weights(str(vision_folder)) == vision_folder


def test_weights_of_the_hub_are_in_the_local_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--model"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    (snapshot / "model.safetensors").write_bytes(b"")
    assert find_weights("some/model") == snapshot


@pytest.mark.parametrize("find", [find_weights, open_processor, open_token_counter])
def test_a_model_that_is_nowhere_is_one_sentence(find, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    gone = str(tmp_path / "gone")
    with pytest.raises(ModelError, match="there is no folder") as caught:
        find(gone)
    assert gone in str(caught.value)
    assert "\n" not in str(caught.value)
