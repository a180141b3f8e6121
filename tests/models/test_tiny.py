import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import AutoModelForImageTextToText, Qwen2_5_VLForConditionalGeneration

from groupwise.core import ModelError, open_picture
from groupwise.models.policy import load_policy
from groupwise.models.settings import TINY_MODELS
from groupwise.models.tiny import write_tiny_policy
from groupwise.models.tokenizing import train_tokenizer

TOKENIZER = train_tokenizer(["on-task", "离题"])
TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"])) | st.text(
    alphabet=st.sampled_from("on-task 通过不通过。,🙂👩‍💻é\n\t<|>")
)


def test_vision_model_is_the_real_architecture(vision_folder):
    model = AutoModelForImageTextToText.from_pretrained(vision_folder)
    assert type(model) is Qwen2_5_VLForConditionalGeneration
    assert 3_000_000 <= model.num_parameters() <= 15_000_000
    # M-RoPE: time, height and width share a head's rotary frequencies.
    rope = model.config.text_config.rope_parameters
    head = model.config.text_config.hidden_size // model.config.text_config.num_attention_heads
    assert len(rope["mrope_section"]) == 3
    assert 2 * sum(rope["mrope_section"]) == head


def test_mrope_positions_differ_between_rows_and_columns(vision_folder, picture_examples):
    policy = load_policy(vision_folder)
    text = policy.render_prompt(picture_examples[0])
    picture = open_picture(picture_examples[0].pictures[0]).resize((384, 256))
    processor = load_policy(vision_folder, max_pixels=384 * 256).processor
    inputs = processor(text=[text], images=[picture], return_tensors="pt")
    positions, _ = policy.model.model.get_rope_index(
        input_ids=inputs["input_ids"],
        mm_token_type_ids=inputs["mm_token_type_ids"],
        image_grid_thw=inputs["image_grid_thw"],
        attention_mask=inputs["attention_mask"],
    )
    is_picture = inputs["mm_token_type_ids"][0] == 1
    _, rows, columns = positions[:, 0, is_picture].tolist()
    merged = processor.image_processor.merge_size
    _, height, width = (inputs["image_grid_thw"][0] // merged).tolist()
    assert len(set(rows)) == height == 2
    assert len(set(columns)) == width == 3


@pytest.mark.parametrize("base", TINY_MODELS)
def test_same_seed_same_weights(base, tmp_path):
    first, again, other = (
        load_policy(write_tiny_policy(base, tmp_path / name, seed=seed)).model.state_dict()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert all(first[name].equal(again[name]) for name in first)
    assert any(not first[name].equal(other[name]) for name in first)


def test_unknown_tiny_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"unknown tiny model; got 'tiny-gpt'.*tiny-qwen2"):
        write_tiny_policy("tiny-gpt", tmp_path)


@given(TEXT)
@settings(max_examples=200)
def test_tokenizer_gives_back_any_text(text):
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("num_pictures", [0, 1, 2])
def test_template_writes_one_placeholder_per_merged_patch(num_pictures, vision_folder):
    processor = load_policy(vision_folder, max_pixels=8 * 128**2).processor
    pictures = [Image.new("RGB", size) for size in [(384, 256), (256, 512)][:num_pictures]]
    parts = [{"type": "image", "image": picture} for picture in pictures]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "看"}]}]
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.count("<|image_pad|>") == num_pictures
    named = {"images": [pictures]} if pictures else {}
    inputs = processor(text=[text], return_tensors="pt", **named)
    placeholders = int((inputs["input_ids"] == processor.image_token_id).sum())
    assert placeholders == [0, 3 * 2, 3 * 2 + 2 * 4][num_pictures]
    assert text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("base", TINY_MODELS)
def test_a_start_that_looks_back_changes_two_blocks_and_no_other_weights(base, tmp_path):
    plain = load_policy(write_tiny_policy(base, tmp_path / "a", seed=1)).model.state_dict()
    start = write_tiny_policy(base, tmp_path / "b", seed=1, looks_back=True)
    changed = load_policy(start).model.state_dict()
    names = {name.split("layers.")[-1] for name in plain if not plain[name].equal(changed[name])}
    assert names == {
        "0.self_attn.q_proj.weight",
        "0.self_attn.q_proj.bias",
        "0.self_attn.k_proj.weight",
        "0.self_attn.k_proj.bias",
        "0.self_attn.o_proj.weight",
        "1.self_attn.q_proj.weight",
        "1.self_attn.k_proj.weight",
    }


def test_three_heads_start_out_looking_at_the_last_three_tokens(tmp_path):
    policy = load_policy(write_tiny_policy("tiny-qwen2", tmp_path, looks_back=True))
    policy.model.set_attn_implementation("eager")
    ids = torch.randint(20, 250, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        attention = policy.model(input_ids=ids, output_attentions=True).attentions[0]
    for distance in range(3):
        looked = attention[:, distance].diagonal(-distance, dim1=-2, dim2=-1)
        assert looked.min() > 0.8
    assert attention[:, 3:, 5:].amax() < 0.8
