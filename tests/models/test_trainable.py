import re
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from noisy_policies import add_noise, read_logits
from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
from pydantic import ValidationError

from groupwise.core import ConfigError, ModelError, dump_config, load_config, read_json
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.models import quantization
from groupwise.models.export import average_policy, export_policy
from groupwise.models.identity import digest_base
from groupwise.models.policy import Policy, load_policy
from groupwise.models.quantization import explain_no_quantization
from groupwise.models.settings import TINY_MODELS, ModelSettings
from groupwise.models.trainable import (
    LoraSettings,
    PromptSettings,
    TrainableSettings,
    count_blocks,
    find_vectors,
    format_trainable,
    list_trainable,
    prepare_trainable,
    restore_trainable,
    tabulate_trainable,
)
from groupwise.training.settings import SftRow
from groupwise.training.sft import RowCollator


@pytest.fixture
def model(vision_folder):
    return load_policy(vision_folder).model


def count_by_part(model):
    return {row.part: row.num_trainable for row in tabulate_trainable(model) if row.num_trainable}


@pytest.mark.parametrize(("last_blocks", "touched"), [(1, {2}), (2, {1, 2}), (None, {0, 1, 2})])
def test_lora_is_on_the_last_language_blocks_only(model, last_blocks, touched):
    trained = prepare_trainable(
        model, TrainableSettings(lora=LoraSettings(last_blocks=last_blocks))
    )
    names = list_trainable(trained)
    assert {
        int(re.search(r"language_model\.layers\.(\d+)\.", n).group(1)) for n in names
    } == touched
    assert not [name for name in names if "visual" in name or "lora_" not in name]
    # Seven linear layers in each block, two factors for each.
    assert len(names) == 7 * 2 * len(touched)
    assert not [n for n, _ in trained.named_parameters() if "visual" in n and "lora" in n]


@pytest.mark.parametrize("freeze_vision", [True, False])
@pytest.mark.parametrize("freeze_aligner", [True, False])
def test_vision_and_aligner_freeze_on_their_own(model, freeze_vision, freeze_aligner):
    settings = TrainableSettings(
        method="full", freeze_vision=freeze_vision, freeze_aligner=freeze_aligner
    )
    parts = set(count_by_part(prepare_trainable(model, settings)))
    assert ("vision" in parts) is not freeze_vision
    assert ("aligner" in parts) is not freeze_aligner
    blocks = {f"language block {number}" for number in range(3)}
    assert parts - {"vision", "aligner"} == blocks | {"embeddings and head"}


def test_nothing_to_train_and_too_many_blocks_are_refused(model):
    settings = TrainableSettings(lora=LoraSettings(modules=("no_such_layer",)))
    with pytest.raises(ModelError, match=r"no parameter is trainable.*no_such_layer"):
        prepare_trainable(model, settings)
    assert count_blocks(model) == 3
    with pytest.raises(ConfigError, match=r"last_blocks is too large; got 4; expected <= 3"):
        prepare_trainable(model, TrainableSettings(lora=LoraSettings(last_blocks=4)))


@pytest.mark.parametrize("values", [{"rank": 0}, {"last_blocks": 0}, {"alpha": 0}])
def test_empty_adapters_are_refused(values):
    with pytest.raises(ConfigError):
        load_config(LoraSettings, values)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_totals_of_the_table_are_the_models(model, method):
    trained = prepare_trainable(model, TrainableSettings(method=method))
    rows = tabulate_trainable(trained)
    trainable = sum(p.numel() for p in trained.parameters() if p.requires_grad)
    frozen = sum(p.numel() for p in trained.parameters() if not p.requires_grad)
    assert sum(row.num_trainable for row in rows) == trainable > 0
    assert sum(row.num_frozen for row in rows) == frozen > 0
    total = format_trainable(rows).splitlines()[-1].split()
    assert total == ["total", f"{trainable:,}", f"{frozen:,}"]


@pytest.mark.parametrize(
    ("last", "parts"),
    [
        (1, ["language blocks 0 to 1, each", "language block 2"]),
        (None, ["language blocks 0 to 2, each"]),
    ],
)
def test_blocks_that_are_alike_are_one_line(model, last, parts):
    settings = TrainableSettings(lora=LoraSettings(last_blocks=last))
    lines = format_trainable(tabulate_trainable(prepare_trainable(model, settings))).splitlines()
    assert [line[:32].rstrip() for line in lines if line.startswith("language")] == parts


def adapt(model, folder, **lora):
    trained = prepare_trainable(model, TrainableSettings(lora=LoraSettings(**lora)))
    trained.save_pretrained(folder)
    return load_policy(folder).model


def test_an_adapter_is_continued_in_the_blocks_asked_for(model, tmp_path):
    loaded = adapt(model, tmp_path, rank=4)
    assert list_trainable(loaded) == set()
    trained = prepare_trainable(loaded, TrainableSettings(lora=LoraSettings(rank=4, last_blocks=1)))
    assert trained is loaded
    names = list_trainable(trained)
    assert len(names) == 14
    assert all("layers.2." in name and ".default." in name for name in names)


def test_an_adapter_on_a_base_that_was_named_by_a_relative_path_loads_from_elsewhere(
    text_folder, tmp_path, monkeypatch
):
    (tmp_path / "inner").mkdir()
    (tmp_path / "base").symlink_to(text_folder)
    monkeypatch.chdir(tmp_path / "inner")
    policy = load_policy("../base")
    trained = prepare_trainable(policy.model, TrainableSettings())
    replace(policy, model=trained).save(tmp_path / "runs" / "one" / "adapter")
    monkeypatch.chdir(tmp_path)
    assert load_policy("runs/one/adapter").model.peft_config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TrainableSettings(lora=LoraSettings(rank=8)), "not those of the adapter"),
        (TrainableSettings(lora=LoraSettings(rank=4)), "not on all of the blocks"),
        (TrainableSettings(method="full"), "cannot be trained in full"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(model, tmp_path, settings, message):
    loaded = adapt(model, tmp_path, rank=4, last_blocks=1)
    with pytest.raises(ConfigError, match=message):
        prepare_trainable(loaded, settings)


@pytest.mark.parametrize(
    ("config", "name", "got"),
    [
        (IA3Config(target_modules=["q_proj"], feedforward_modules=[]), "default", "default: IA3"),
        (LoraConfig(target_modules=["q_proj"]), "mine", "mine: LORA"),
    ],
)
def test_an_adapter_of_another_kind_or_name_is_refused(model, config, name, got):
    adapted = get_peft_model(model, config, adapter_name=name)
    with pytest.raises(ConfigError, match=f"one LoRA adapter.*got {got}.*expected default: LORA"):
        prepare_trainable(adapted, TrainableSettings())


def test_restoring_makes_exactly_the_named_ones_train(model):
    prepare_trainable(model, TrainableSettings(method="full"))
    names = list_trainable(model)
    model.requires_grad_(True)
    restore_trainable(model, names)
    assert list_trainable(model) == names


def ask_for(num_tokens):
    return TrainableSettings(method="prompt", prompt=PromptSettings(num_tokens=num_tokens))


def add_tokens(folder, num_tokens=5, *, noise=0.0):
    """Return a policy with virtual tokens, its vectors drawn from a seed."""
    policy = load_policy(folder)
    torch.manual_seed(3)
    model = prepare_trainable(policy.model, ask_for(num_tokens), processor=policy.processor)
    vectors = find_vectors(model)
    vectors.data += noise * torch.randn(vectors.shape, generator=torch.manual_seed(1))
    return Policy(model.eval(), policy.processor, policy.has_vision)


@pytest.fixture(params=["text", "picture"])
def asked(request):
    """A base, and what it is asked."""
    folder = {"text": "text_folder", "picture": "vision_folder"}[request.param]
    return request.getfixturevalue(folder), request.getfixturevalue(f"{request.param}_examples")


def answer(policy, examples):
    found = LocalModel(policy).generate(examples, sampling=Sampling(max_new_tokens=8))
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
def test_what_is_saved_loads_again(asked, tmp_path, num_tokens):
    folder, examples = asked
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


def test_the_export_loads_and_answers_alike(asked, tmp_path):
    folder, examples = asked
    policy = add_tokens(folder, 10, noise=1.0)
    policy.save(tmp_path / "policy")
    exported = export_policy(tmp_path / "policy", tmp_path / "out")
    assert exported.max_difference < 1e-4
    assert exported.adapter is not None
    expected = answer(policy, examples)
    assert answer(load_policy(exported.merged), examples) == expected
    assert answer(load_policy(exported.adapter), examples) == expected
    assert exported.list_commands() == [f"vllm serve {tmp_path / 'out' / 'merged'}"]


@pytest.mark.parametrize("num_tokens", [5, 40])
def test_without_the_adapter_the_base_answers(vision_folder, picture_examples, num_tokens):
    expected = answer(load_policy(vision_folder), picture_examples)
    policy = add_tokens(vision_folder, num_tokens, noise=1.0)
    own = answer(policy, picture_examples)
    with policy.adapter_off():
        assert answer(policy, picture_examples) == expected
    assert answer(policy, picture_examples) == own != expected


def test_vectors_start_as_drawn_tokens(text_folder):
    embedding = load_policy(text_folder).model.get_input_embeddings().weight
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


def test_virtual_tokens_on_merged_ones_or_of_another_base_are_refused(text_folder, tmp_path):
    """And those without rows in the head are not merged."""
    for num_tokens in (5, 40):
        add_tokens(text_folder, num_tokens).save(tmp_path / str(num_tokens))
    with pytest.raises(ModelError, match="virtual tokens cannot be merged into this base"):
        export_policy(tmp_path / "40", tmp_path / "none")
    merged = export_policy(tmp_path / "5", tmp_path / "out").merged
    with pytest.raises(ConfigError, match="the base has virtual tokens already"):
        add_tokens(merged, 5)
    path = tmp_path / "5" / "adapter_config.json"
    path.write_text(path.read_text().replace("497", "400"))
    with pytest.raises(ModelError, match="do not belong to this base; got ids 400 to 501"):
        load_policy(tmp_path / "5")


LORA = TrainableSettings(lora=LoraSettings(rank=4))
needs_bits = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'groupwise[quantization]'",
)


@pytest.fixture
def trained(text_folder, tmp_path):
    """The folder of an adapter on 4 bits that changes what they say."""
    policy = load_policy(text_folder, quantization="nf4")
    torch.manual_seed(0)
    add_noise(policy, LORA).save(tmp_path / "trained")
    return tmp_path / "trained"


def test_where_there_are_no_bits_a_sentence_says_why(text_folder, monkeypatch):
    monkeypatch.setattr(quantization, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"pip install 'groupwise\[quantization\]'"):
        load_policy(text_folder, quantization="nf4")
    monkeypatch.setattr(quantization, "find_spec", lambda _: object())
    assert "experts" in explain_no_quantization(has_experts=True)
    assert explain_no_quantization(has_experts=False) is None


@needs_bits
@pytest.mark.parametrize("folder", ["text_folder", "vision_folder"])
def test_linear_layers_have_four_bits_and_their_weights_are_counted(folder, request):
    whole = load_policy(request.getfixturevalue(folder)).model
    small = load_policy(request.getfixturevalue(folder), quantization="nf4").model
    sizes = dict(whole.named_parameters())
    quantized = {n: p for n, p in small.named_parameters() if p.dtype == torch.uint8}
    linear = {
        f"{name}.weight"
        for name, part in whole.named_modules()
        if isinstance(part, torch.nn.Linear) and part is not whole.get_output_embeddings()
    }
    assert set(quantized) == linear
    assert all(2 * p.nbytes == sizes[name].numel() for name, p in quantized.items())
    assert tabulate_trainable(prepare_trainable(small, LORA)) == tabulate_trainable(
        prepare_trainable(whole, LORA)
    )


@needs_bits
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_answer_in_evaluation_as_in_training(dtype, text_folder):
    model = load_policy(text_folder, quantization="nf4", dtype=dtype).model
    layer = model.model.layers[0].mlp.up_proj
    given = torch.randn(5, layer.in_features, dtype=model.dtype, device=model.device)
    with torch.no_grad():
        trained = layer.train()(given)
        assert torch.equal(layer.eval()(given), trained)


@needs_bits
def test_an_adapter_is_put_on_the_bits_that_it_trained_on(trained, text_folder, text_examples):
    found = read_logits(load_policy(trained), text_examples[0])
    asked = read_logits(load_policy(trained, quantization="nf4"), text_examples[0])
    assert torch.equal(found, asked)
    (trained / "quantization.json").unlink()
    assert (read_logits(load_policy(trained), text_examples[0]) - found).abs().max() > 1e-2


@needs_bits
def test_merged_weights_say_what_the_bits_and_the_adapter_say(trained, tmp_path, text_examples):
    exported = export_policy(trained, tmp_path / "out")
    merged = load_policy(exported.merged)
    expected = read_logits(load_policy(exported.adapter), text_examples[0])
    # A token here and there amplifies rounding; other bits are more than 1e-2 off, as seen above.
    difference = (read_logits(merged, text_examples[0]) - expected).abs()
    assert difference.mean() < 2e-5
    assert difference.max() < 1e-3
    assert 0 < exported.max_difference < 1e-3
    assert {p.dtype for p in merged.model.parameters()} == {torch.float32}
    assert exported.quantization == "nf4"
    assert exported.list_commands() == [f"vllm serve {exported.merged}"]


@needs_bits
@pytest.mark.parametrize("method", ["full", "prompt"])
def test_only_a_lora_trains_on_bits(method, text_folder):
    policy = load_policy(text_folder, quantization="nf4")
    with pytest.raises(ConfigError, match="only a LoRA on them"):
        prepare_trainable(
            policy.model, TrainableSettings(method=method), processor=policy.processor
        )


@needs_bits
def test_what_lies_between_bits_and_other_weights_is_no_average(
    trained, text_folder, vision_folder
):
    scaled = average_policy(trained, text_folder, 0.5)
    assert quantization.find_quantization(scaled.model) == "nf4"
    with pytest.raises(ModelError, match="in 4 bits"):
        average_policy(trained, vision_folder, 0.5)


def test_weights_quantised_in_another_way_are_refused(text_folder):
    model = load_policy(text_folder).model
    model.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    with pytest.raises(ModelError, match="gptq"):
        prepare_trainable(model, LORA)


def test_only_a_tiny_model_is_built_here(tmp_path):
    assert all(ModelSettings(base=base).is_tiny for base in TINY_MODELS)
    for base in ("Qwen/Qwen2.5-VL-3B-Instruct", str(tmp_path)):
        assert not ModelSettings(base=base).is_tiny


def test_steps_are_recognised_by_these_keys():
    """Pixels need not be said where there may be no pictures."""
    assert dump_config(ModelSettings(base="some/model")) == {
        "base": "some/model",
        "dtype": "float32",
        "quantization": None,
        "max_pixels": 401_408,
        "shape": None,
    }


@pytest.mark.parametrize("values", [{"max_pixels": 783}, {"max_pixels": 784, "side": 28}])
def test_pixels_that_are_said_make_a_token(values):
    with pytest.raises(ValidationError):
        ModelSettings(base="some/model", **values)
