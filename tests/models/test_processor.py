"""The processor of Qwen-VL models is the same on every machine, and others can open it."""

import json

import pytest

from groupwise.core import open_picture
from groupwise.models import PictureProcessor, load_policy, load_processor, processor


def test_it_is_the_same_one_where_torchvision_is_installed(vision_folder, monkeypatch):
    monkeypatch.setattr(processor, "find_spec", lambda name: object())
    found = load_processor(vision_folder, model_type="qwen2_5_vl", has_vision=True)
    assert type(found) is PictureProcessor


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("qwen2_vl", "Qwen2VLProcessor"),
        ("qwen2_5_vl", "Qwen2_5_VLProcessor"),
        ("qwen3_vl", "Qwen3VLProcessor"),
    ],
)
def test_it_is_saved_as_the_one_of_its_model(vision_folder, tmp_path, model_type, name):
    found = load_processor(vision_folder, model_type=model_type, has_vision=True)
    found.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "processor_config.json").read_text(encoding="utf-8"))
    assert saved["processor_class"] == name
    assert saved["video_processor"]["merge_size"] == saved["image_processor"]["merge_size"] == 8


def test_auto_processor_opens_what_was_saved(vision_folder, tmp_path, picture_examples):
    pytest.importorskip("torchvision")
    from transformers import AutoProcessor

    policy = load_policy(vision_folder)
    policy.save(tmp_path)
    other = AutoProcessor.from_pretrained(tmp_path, padding_side="left")
    assert type(other).__name__ == "Qwen2_5_VLProcessor"
    texts = [policy.render_prompt(one) for one in picture_examples[:2]]
    pictures = [[open_picture(p) for p in one.pictures] for one in picture_examples[:2]]
    own, its = (
        one(text=texts, images=pictures, padding=True, return_tensors="pt")
        for one in (policy.processor, other)
    )
    assert own["input_ids"].equal(its["input_ids"])
    assert own["image_grid_thw"].equal(its["image_grid_thw"])
