"""What is known of a base model without loading its weights."""

import shutil

from groupwise.models import ModelShape, count_blocks, find_shape, load_policy

GIVEN = ModelShape(num_parameters=7, num_blocks=2, hidden_size=8, vocabulary_size=9)


def test_the_shape_is_that_of_the_loaded_model(vision_folder):
    found = find_shape(str(vision_folder), GIVEN)
    assert found is not None
    model = load_policy(vision_folder).model
    rows, width = model.get_input_embeddings().weight.shape
    assert (found.num_blocks, found.hidden_size) == (count_blocks(model), width)
    assert found.vocabulary_size == rows
    language = sum(p.numel() for name, p in model.named_parameters() if "visual" not in name)
    assert language <= found.num_parameters < 1.12 * language  # Keys and values as if square.


def test_a_model_that_is_not_at_hand_has_the_given_shape(tmp_path):
    for base in (str(tmp_path / "gone"), "tiny-qwen2.5-vl"):
        assert find_shape(base, GIVEN) == GIVEN
        assert find_shape(base) is None


def test_a_folder_of_a_preset_s_name_is_not_the_preset(vision_folder, tmp_path, monkeypatch):
    shutil.copytree(vision_folder, tmp_path / "tiny-qwen2.5-vl")
    monkeypatch.chdir(tmp_path)
    assert find_shape("./tiny-qwen2.5-vl") is not None
    assert find_shape("tiny-qwen2.5-vl") is None
