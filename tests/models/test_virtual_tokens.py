"""Prompt tuning: virtual tokens are tokens of the prompt, and only their vectors train."""

from typing import Any

import pytest
import torch
from peft import PromptTuningConfig, get_peft_model

from groupwise.core import ConfigError, ModelError, read_json
from groupwise.inference import LocalEngine, Sampling
from groupwise.models import (
    Policy,
    PromptSettings,
    TrainableSettings,
    digest_base,
    export_policy,
    list_trainable,
    load_policy,
    prepare_trainable,
    tabulate_trainable,
)
from groupwise.models.virtual_tokens import find_vectors
from groupwise.training.settings import SftRow
from groupwise.training.sft import RowCollator


def ask_for(num_tokens, words=None):
    return TrainableSettings(
        method="prompt", prompt=PromptSettings(num_tokens=num_tokens, words=words)
    )


def add_tokens(folder, num_tokens=5, *, words=None, noise=0.0):
    """Return a policy with virtual tokens, its vectors drawn from a seed."""
    policy = load_policy(folder)
    torch.manual_seed(3)
    settings = ask_for(num_tokens, words)
    model = prepare_trainable(policy.model, settings, processor=policy.processor)
    vectors = find_vectors(model)
    vectors.data += noise * torch.randn(vectors.shape, generator=torch.manual_seed(1))
    return Policy(model.eval(), policy.processor, policy.has_vision)


def answer(policy, examples):
    found = LocalEngine(policy).generate(examples, sampling=Sampling(max_new_tokens=8))
    return [completion.token_ids for [completion] in found]


@pytest.mark.parametrize("num_tokens", [5, 10, 40])
def test_logits_loss_and_gradient_are_those_of_peft_prompt_tuning(
    text_folder, text_examples, num_tokens
):
    """Of 40 tokens, some are beyond the rows that the base has to spare."""
    policy = add_tokens(text_folder, num_tokens, noise=0.1)
    base = load_policy(text_folder)
    rows = [SftRow(example, str(example.label)) for example in text_examples[:3]]
    batch = RowCollator(policy, augmentation=None, seed=0)([(0, 0, row) for row in rows])
    by_hand = [write_by_hand(base, row) for row in rows]
    width = max(len(ids) for ids, _ in by_hand)
    ids, labels, mask = (torch.full((3, width), fill) for fill in (7, -100, 0))
    for number, (own, taught) in enumerate(by_hand):
        ids[number, : len(own)], labels[number, : len(own)] = own, taught
        mask[number, : len(own)] = 1
    assert torch.equal(batch["labels"][:, num_tokens:], labels)
    assert (batch["labels"][:, :num_tokens] == -100).all()

    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=num_tokens)
    peft: Any = get_peft_model(base.model, config)
    own, theirs = find_vectors(policy.model), peft.prompt_encoder["default"].embedding.weight
    theirs.data.copy_(own.data)
    expected = peft(input_ids=ids, attention_mask=mask, labels=labels)
    found = policy.model(**batch)
    is_real = batch["attention_mask"].bool()
    assert expected.loss > 0.1
    assert torch.allclose(found.logits[is_real], expected.logits[is_real], atol=1e-5)
    assert torch.allclose(found.loss, expected.loss, atol=1e-6)
    expected.loss.backward()
    found.loss.backward()
    assert theirs.grad.abs().max() > 1e-3
    assert torch.allclose(own.grad, theirs.grad, atol=1e-6)
    assert [name for name, p in policy.model.named_parameters() if p.grad is not None] == [
        *list_trainable(policy.model)
    ]


def write_by_hand(policy, row):
    prompt = policy.tokenizer.encode(policy.render_prompt(row.example))
    target = [*policy.tokenizer.encode(row.target), policy.tokenizer.eos_token_id]
    return torch.tensor(prompt + target), torch.tensor([-100] * len(prompt) + target)


@pytest.mark.parametrize("num_tokens", [10, 40])
@pytest.mark.parametrize("kind", ["text", "picture"])
def test_what_is_saved_loads_again(request, tmp_path, kind, num_tokens):
    folder = request.getfixturevalue({"text": "text_folder", "picture": "vision_folder"}[kind])
    examples = request.getfixturevalue(f"{kind}_examples")
    policy = add_tokens(folder, num_tokens, noise=1.0)
    policy.save(tmp_path / "policy")
    assert not (tmp_path / "policy" / "model.safetensors").exists()
    config = read_json(tmp_path / "policy" / "adapter_config.json", dict)
    assert (config["peft_type"], len(config["token_indices"])) == ("TRAINABLE_TOKENS", num_tokens)
    loaded = load_policy(tmp_path / "policy")
    assert torch.equal(find_vectors(loaded.model), find_vectors(policy.model))
    assert loaded.render_prompt(examples[0]) == policy.render_prompt(examples[0])
    assert answer(loaded, examples) == answer(policy, examples)
    assert answer(loaded, examples) != answer(load_policy(folder), examples)
    assert digest_base(tmp_path / "policy") != digest_base(folder)


@pytest.mark.parametrize("kind", ["text", "picture"])
def test_the_export_loads_and_answers_alike(request, tmp_path, kind):
    folder = request.getfixturevalue({"text": "text_folder", "picture": "vision_folder"}[kind])
    examples = request.getfixturevalue(f"{kind}_examples")
    policy = add_tokens(folder, 10, noise=1.0)
    policy.save(tmp_path / "policy")
    exported = export_policy(tmp_path / "policy", tmp_path / "out")
    assert exported.max_difference < 1e-4
    assert exported.adapter is not None
    expected = answer(policy, examples)
    assert answer(load_policy(exported.merged), examples) == expected
    assert answer(load_policy(exported.adapter), examples) == expected
    assert exported.list_commands() == [f"vllm serve {tmp_path / 'out' / 'merged'}"]


def test_virtual_tokens_without_rows_in_the_head_are_not_merged(text_folder, tmp_path):
    add_tokens(text_folder, 40).save(tmp_path / "policy")
    with pytest.raises(ModelError, match="virtual tokens cannot be merged into this base"):
        export_policy(tmp_path / "policy", tmp_path / "out")


@pytest.mark.parametrize("num_tokens", [5, 40])
def test_without_the_adapter_the_base_answers(vision_folder, picture_examples, num_tokens):
    expected = answer(load_policy(vision_folder), picture_examples)
    policy = add_tokens(vision_folder, num_tokens, noise=1.0)
    own = answer(policy, picture_examples)
    with policy.adapter_off():
        assert answer(policy, picture_examples) == expected
    assert answer(policy, picture_examples) == own != expected


def test_vectors_start_as_words_or_as_drawn_tokens(text_folder):
    base = load_policy(text_folder)
    embedding = base.model.get_input_embeddings().weight
    ids = base.tokenizer.encode("True or False")
    found = find_vectors(add_tokens(text_folder, 9, words="True or False").model)
    assert 1 < len(ids) < 9
    assert torch.equal(found, embedding[(ids * 9)[:9]])
    drawn = find_vectors(add_tokens(text_folder, 9).model)
    assert all((embedding == vector).all(1).any() for vector in drawn)
    assert len(drawn.unique(dim=0)) > 5
    assert torch.equal(drawn, find_vectors(add_tokens(text_folder, 9).model))


def test_what_trains_is_counted(vision_folder):
    rows = tabulate_trainable(add_tokens(vision_folder, 5).model)
    base = sum(p.numel() for p in load_policy(vision_folder).model.parameters())
    assert {row.part: row.num_trainable for row in rows if row.num_trainable} == {
        "virtual tokens": 5 * 192
    }
    assert sum(row.num_frozen for row in rows) == base


def test_another_number_of_tokens_than_the_policy_has_is_refused(text_folder, tmp_path):
    add_tokens(text_folder, 5).save(tmp_path)
    policy = load_policy(tmp_path)
    assert list_trainable(policy.model) == set()
    with pytest.raises(ConfigError, match=r"num_tokens is not that .* got 10; expected 5"):
        prepare_trainable(policy.model, ask_for(10), processor=policy.processor)
    trained = prepare_trainable(policy.model, ask_for(5), processor=policy.processor)
    assert trained is policy.model
    assert len(list_trainable(trained)) == 1


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ("prompt", "lora", "one LoRA adapter.*got default: TRAINABLE_TOKENS"),
        ("prompt", "full", "cannot be trained in full.*expected method: prompt"),
        ("lora", "prompt", "one set of virtual tokens.*got default: LORA"),
    ],
)
def test_another_method_than_the_policy_was_trained_by_is_refused(
    text_folder, tmp_path, first, then, message
):
    policy = load_policy(text_folder)
    model = prepare_trainable(
        policy.model, TrainableSettings(method=first), processor=policy.processor
    )
    Policy(model, policy.processor, has_vision=False).save(tmp_path)
    loaded = load_policy(tmp_path)
    with pytest.raises(ConfigError, match=message):
        prepare_trainable(loaded.model, TrainableSettings(method=then), processor=loaded.processor)


def test_virtual_tokens_on_merged_ones_are_refused(text_folder, tmp_path):
    add_tokens(text_folder, 5).save(tmp_path / "policy")
    merged = export_policy(tmp_path / "policy", tmp_path / "out").merged
    with pytest.raises(ConfigError, match="the base has virtual tokens already"):
        add_tokens(merged, 5)


def test_vectors_of_another_base_are_refused(text_folder, tmp_path):
    add_tokens(text_folder, 5).save(tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(path.read_text().replace("497", "400"))
    with pytest.raises(ModelError, match="do not belong to this base; got ids 400 to 501"):
        load_policy(tmp_path)
