import pytest
import torch

from groupwise.core import ModelError
from groupwise.models import LoraSettings, TrainableSettings, load_policy, prepare_trainable


def read_logits(policy, example):
    inputs = policy.processor(text=[policy.render_prompt(example)], return_tensors="pt")
    with torch.no_grad():
        return policy.model(**inputs).logits


def test_missing_folder_is_one_sentence(tmp_path):
    with pytest.raises(ModelError) as caught:
        load_policy(tmp_path / "nowhere")
    message = str(caught.value)
    assert str(tmp_path / "nowhere") in message
    assert "\n" not in message
    assert "Traceback" not in message


def test_folder_without_weights_is_one_sentence(tmp_path, text_folder):
    (tmp_path / "config.json").write_bytes((text_folder / "config.json").read_bytes())
    with pytest.raises(ModelError) as caught:
        load_policy(tmp_path)
    assert "\n" not in str(caught.value)


def test_end_tokens_are_unique_numbers(vision_folder, text_folder):
    for folder in (vision_folder, text_folder):
        policy = load_policy(folder)
        assert policy.end_token_ids == (policy.tokenizer.convert_tokens_to_ids("<|im_end|>"),)
        policy.model.generation_config.eos_token_id = [5, 6]
        assert policy.end_token_ids == (5, 6, policy.tokenizer.eos_token_id)


def test_text_policy_refuses_pictures(text_folder, picture_examples):
    with pytest.raises(ModelError, match="takes no pictures"):
        load_policy(text_folder).render_prompt(picture_examples[0])


def test_adapter_folder_gives_the_trained_logits(tmp_path, text_folder, text_examples):
    policy = load_policy(text_folder)
    before = read_logits(policy, text_examples[0])
    model = prepare_trainable(policy.model, TrainableSettings(lora=LoraSettings(last_blocks=2)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.manual_seed(1)))
                assert "lora_" in name
    trained = type(policy)(model.eval(), policy.processor, policy.has_vision)
    trained.save(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    after = read_logits(trained, text_examples[0])
    loaded = load_policy(tmp_path / "adapter")
    assert (after - before).abs().max() > 1e-2
    assert torch.equal(read_logits(loaded, text_examples[0]), after)


def test_loading_and_saving_print_nothing(tmp_path, text_folder, capfd):
    load_policy(text_folder).save(tmp_path)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""
