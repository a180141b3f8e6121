"""Processors are the same on every machine, and others can open them."""

import json

import pytest
import torch
import transformers
import vision_families
from torch import nn
from transformers.models.smolvlm import processing_smolvlm

from groupwise.core import ModelError, open_picture
from groupwise.models import processor
from groupwise.models.policy import (
    PatchProjection,
    load_policy,
    project_patches_fast,
    unplanned_attention,
)
from groupwise.models.processor import load_processor
from groupwise.models.prompts import make_token_counter
from groupwise.models.tokenizing import find_tokenizer

# By type of model: its own processor.
OTHERS = {
    "gemma3": ("gemma3_vl", "Gemma3Processor"),
    "idefics3": ("idefics3", "Idefics3Processor"),
    "internvl": ("internvl", "InternVLProcessor"),
    "llava": ("llava", "LlavaProcessor"),
    "llava_next": ("llava_next", "LlavaNextProcessor"),
    "llava_onevision": ("llava_onevision", "LlavaOnevisionProcessor"),
    "smolvlm": ("smolvlm", "SmolVLMProcessor"),
}


@pytest.fixture
def write(text_folder, tmp_path):
    """Write a family's processor, and load it."""

    def run(family, **named):
        tokenizer = load_policy(text_folder).processor
        made = vision_families.make_processor(family, tokenizer, vision_families.Sizes())
        made.save_pretrained(tmp_path)
        return load_processor(tmp_path, has_vision=True, **named)

    return run


@pytest.mark.parametrize("kind", OTHERS)
def test_others_need_no_torchvision(write, picture_examples, tmp_path, kind):
    family, name = OTHERS[kind]
    found = write(family, model_type=kind, max_pixels=28 * 28)
    saved = json.loads((tmp_path / "processor_config.json").read_text(encoding="utf-8"))
    assert type(found).__name__ == saved["processor_class"] == name
    assert type(found.image_processor).__name__.endswith("Pil")
    assert found.tokenizer.padding_side == "left"
    # A limit of pixels is not the length of a side.
    assert "784" not in str(found.image_processor.size)
    counted = make_token_counter(found, has_vision=True)(picture_examples[0])
    text = found.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, *_read_words(picture_examples[0])]}],
        add_generation_prompt=True,
    )
    pictures = [[open_picture(one) for one in picture_examples[0].pictures]]
    assert counted == len(found(text=[text], images=pictures)["input_ids"][0])


def _read_words(example):
    return [{"type": "text", "text": turn.text} for turn in example.prompt]


def test_smolvlm_writes_pictures_as_its_own_processor_would(write, picture_examples, monkeypatch):
    monkeypatch.setattr(processing_smolvlm, "num2words", str)  # is for videos
    found = write("smolvlm", model_type="smolvlm")
    parts = {"get_attributes": classmethod(lambda _: ["image_processor", "tokenizer"])}
    own = type("Own", (transformers.SmolVLMProcessor,), parts)(
        found.image_processor, found.tokenizer, None, image_seq_len=found.image_seq_len
    )
    pictures = [[open_picture(one.pictures[0])] for one in picture_examples[:2]]
    texts = ["<image> What is it?", "And <image> this?"]
    ids = [one(text=texts, images=pictures)["input_ids"] for one in (found, own)]
    assert ids[0] == ids[1]


def test_pictures_are_counted_only_where_a_prompt_has_several(write, picture_examples):
    """TRL takes no counts."""
    found = write("llava_onevision", model_type="llava_onevision")
    one, other = (open_picture(example.pictures[0]) for example in picture_examples[:2])
    place = found.image_token
    assert "batch_num_images" not in found(text=[place, place], images=[[one], [other]])
    assert "batch_num_images" in found(text=[place * 2], images=[[one, other]])


def test_a_missing_package_or_processor_is_named(vision_folder, text_folder, monkeypatch):
    class Wants:
        @classmethod
        def from_pretrained(cls, *_, **__):
            raise ImportError("\nSomeProcessor requires the Torchvision library but\nmore")

    monkeypatch.setattr(processor, "leave_videos", lambda own: Wants)
    with pytest.raises(ModelError, match="requires the Torchvision library") as caught:
        load_processor(vision_folder, model_type="internvl", has_vision=True)
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match="no processor of pictures"):
        load_processor(text_folder, model_type="llama", has_vision=True)


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


def write_without(folder, base, *names):
    """Write a tokenizer that has no tokens of these names."""
    load_processor(base, model_type="", has_vision=False).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # others have tokens of their own
    path.write_text(json.dumps({k: v for k, v in settings.items() if k not in names}))
    return folder


def test_a_tokenizer_without_padding_pads_with_its_end(text_folder, text_examples, tmp_path):
    """As Llama's: batches of a training and of answers need some token, which nobody looks at."""
    folder = write_without(tmp_path / "base", text_folder, "pad_token")
    tokenizer = load_processor(folder, model_type="", has_vision=False)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    assert find_tokenizer(folder).pad_token_id == tokenizer.eos_token_id
    ids, mask = tokenizer(["a", "a b c"], padding=True).values()
    assert ids[0][: mask[0].count(0)] == [tokenizer.eos_token_id] * mask[0].count(0) != []


def test_a_tokenizer_that_can_pad_with_nothing_is_refused_before_a_run(text_folder, tmp_path):
    folder = write_without(tmp_path / "base", text_folder, "pad_token", "eos_token")
    with pytest.raises(ModelError, match=r"no token that pads.*pad_token"):
        load_processor(folder, model_type="", has_vision=False)
    with pytest.raises(ModelError, match="no token that pads"):
        find_tokenizer(folder)  # a dry run's


def convert(conv: nn.Conv3d) -> nn.Module:
    model = nn.Sequential(conv)
    project_patches_fast(model)
    assert type(model[0]) is PatchProjection
    return model


def run(model: nn.Module, patches: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    output = model(patches)
    output.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return output.detach(), gradients


def check_same(conv: nn.Conv3d, patches: torch.Tensor) -> None:
    expected, expected_gradients = run(conv, patches)
    found, gradients = run(convert(conv), patches)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_patches_are_projected_as_by_the_convolution():
    """Inputs larger than the kernel and padding stay with it."""
    torch.manual_seed(0)
    for bias in (False, True):
        conv = nn.Conv3d(3, 8, (2, 4, 4), stride=(2, 4, 4), bias=bias)
        check_same(conv, torch.randn(5, 3, 2, 4, 4))
        check_same(conv, torch.randn(2, 3, 4, 8, 12))
    check_same(nn.Conv3d(3, 8, (2, 4, 4), padding=1), torch.randn(2, 3, 2, 4, 4))


def test_names_of_weights_stay_and_a_loaded_policy_projects_fast(vision_folder):
    conv = nn.Conv3d(3, 8, (2, 4, 4))
    names = [f"0.{name}" for name in conv.state_dict()]
    assert list(convert(conv).state_dict()) == names
    embed = load_policy(vision_folder).model.model.visual.patch_embed
    assert type(embed.proj) is PatchProjection


CUDA = torch.backends.cuda


def fail_inside():
    with unplanned_attention():
        assert not CUDA.cudnn_sdp_enabled()
        raise KeyError


@pytest.mark.parametrize("before", [True, False])
def test_cudnn_is_left_out_inside_and_as_it_was_afterwards(before):
    usual = CUDA.cudnn_sdp_enabled()
    CUDA.enable_cudnn_sdp(before)
    try:
        with pytest.raises(KeyError):
            fail_inside()
        assert CUDA.cudnn_sdp_enabled() is before
    finally:
        CUDA.enable_cudnn_sdp(usual)
