import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
import trl
from mixed_prompts import encode_by_processor
from noisy_policies import add_noise, read_logits
from PIL import Image

from groupwise.core import (
    Message,
    ModelError,
    make_example,
    open_picture,
    read_json,
    read_picture,
    write_json,
)
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.models.export import keep_policy
from groupwise.models.policy import choose_device, load_policy
from groupwise.models.prompts import build_messages, estimate_picture_tokens, make_token_counter
from groupwise.models.silence import silence_libraries
from groupwise.models.trainable import (
    LoraSettings,
    TrainableSettings,
    format_trainable,
    list_trainable,
    tabulate_trainable,
)

LAST_BLOCKS = TrainableSettings(lora=LoraSettings(last_blocks=2))


@pytest.mark.parametrize(
    ("has_gpu", "num_processes", "expected"),
    [(True, None, "cuda"), (True, "1", "cuda"), (True, "2", "cpu"), (False, None, "cpu")],
)
def test_a_process_that_is_alone_takes_its_gpu(has_gpu, num_processes, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if num_processes:
        monkeypatch.setenv("WORLD_SIZE", num_processes)
    assert choose_device().type == expected


def test_a_folder_that_is_missing_or_has_no_weights_is_one_sentence(tmp_path, text_folder):
    (tmp_path / "config.json").write_bytes((text_folder / "config.json").read_bytes())
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ModelError) as caught:
            load_policy(folder)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_end_tokens_are_unique_numbers(vision_folder, text_folder):
    for folder in (vision_folder, text_folder):
        policy = load_policy(folder)
        assert policy.end_token_ids == (policy.tokenizer.convert_tokens_to_ids("<|im_end|>"),)
        policy.model.generation_config.eos_token_id = [5, 6]
        assert policy.end_token_ids == (5, 6, policy.tokenizer.eos_token_id)


def test_adapter_folder_gives_the_trained_logits(tmp_path, text_folder, text_examples):
    before = read_logits(load_policy(text_folder), text_examples[0])
    trained = add_noise(text_folder, LAST_BLOCKS)
    assert all("lora_" in name for name in list_trainable(trained.model))
    trained.save(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    after = read_logits(trained, text_examples[0])
    loaded = load_policy(tmp_path / "adapter")
    assert (after - before).abs().max() > 1e-2
    assert torch.equal(read_logits(loaded, text_examples[0]), after)


@pytest.fixture
def run(tmp_path, text_folder):
    """A folder with a base and, deeper, an adapter that was trained on it."""
    run = tmp_path / "run"
    shutil.copytree(text_folder, run / "base")
    add_noise(run / "base", LAST_BLOCKS).save(run / "grpo" / "policy")
    return run


def test_an_adapter_finds_its_base_wherever_both_of_them_are(run, text_examples):
    """Saved elsewhere, copied (the base of the original is of no use any more), and moved."""
    loaded = load_policy(run / "grpo" / "policy")
    expected = read_logits(loaded, text_examples[0])
    loaded.save(run / "next")
    assert torch.equal(read_logits(load_policy(run / "next"), text_examples[0]), expected)
    copy = Path(shutil.copytree(run, run.parent / "copy"))
    for path in (run / "base").glob("*.safetensors"):
        path.write_bytes(b"")
    copied = load_policy(copy / "grpo" / "policy")
    assert torch.equal(read_logits(copied, text_examples[0]), expected)
    moved = load_policy(Path(shutil.move(copy, run.parent / "moved")) / "grpo" / "policy")
    assert torch.equal(read_logits(moved, text_examples[0]), expected)


def test_an_adapter_whose_base_is_gone_says_so(run):
    shutil.rmtree(run / "base")
    with pytest.raises(ModelError, match=r"base model of the adapter .* is gone; got no folder"):
        load_policy(run / "grpo" / "policy")


@pytest.mark.parametrize("name", [None, ""])
def test_an_adapter_that_names_no_base_says_so(run, name):
    path = run / "grpo" / "policy" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": name}))
    with pytest.raises(ModelError, match="does not name its base model"):
        load_policy(run / "grpo" / "policy")


def test_with_the_adapter_off_the_base_answers_from_the_same_weights(
    vision_folder, picture_examples
):
    def answer(policy):
        found = LocalModel(policy).generate(picture_examples, sampling=Sampling(max_new_tokens=8))
        return [completion.token_ids for [completion] in found]

    base = load_policy(vision_folder)
    expected = answer(base)
    storage = {p.data_ptr() for p in base.model.parameters()}
    policy = add_noise(base, LAST_BLOCKS, size=0.3)
    loud = answer(policy)
    everything = {p.data_ptr() for p in policy.model.parameters()}
    with policy.adapter_off():
        assert answer(policy) == expected
        assert {p.data_ptr() for p in policy.model.parameters()} == everything
    assert storage < everything
    assert answer(policy) == loud != expected


def test_what_trains_is_the_same_after_the_adapter_was_off(text_folder):
    policy = add_noise(text_folder, LAST_BLOCKS)
    for parameter in policy.model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(KeyError), policy.adapter_off():
        raise KeyError
    assert list_trainable(policy.model) == frozenset()


def test_without_an_adapter_nothing_is_switched_off(text_folder, text_examples):
    policy = load_policy(text_folder)
    with policy.adapter_off():
        assert torch.equal(
            read_logits(policy, text_examples[0]),
            read_logits(load_policy(text_folder), text_examples[0]),
        )


def test_weights_of_a_folder_are_read_from_safetensors_alone(tmp_path, text_folder):
    """A pickle is not opened, not even for its tensors."""
    folder = shutil.copytree(text_folder, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save(load_policy(text_folder).model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no file named model.safetensors"):
        load_policy(folder)
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="cannot load the model"):
        load_policy(folder)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    write_json(adapter / "adapter_config.json", {"base_model_name_or_path": str(text_folder)})
    torch.save({}, adapter / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"no weights that can be read; got no adapter_model.safe"):
        load_policy(adapter)


def test_code_beside_a_model_is_refused_and_nobody_is_asked(tmp_path, text_folder, monkeypatch):
    folder = shutil.copytree(text_folder, tmp_path / "model")
    config = read_json(folder / "config.json", dict)
    own = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    write_json(folder / "config.json", {**config, "model_type": "evil", "auto_map": own})
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ModelError, match="contains custom code"):
        load_policy(folder)
    assert not (tmp_path / "ran").exists()


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


def test_a_text_policy_refuses_pictures_wherever_they_are(
    text_folder, mixed_examples, picture_examples
):
    policy = load_policy(text_folder)
    for example in [*mixed_examples, picture_examples[0]]:
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
    pictures = [open_picture(picture) for picture in example.pictures]
    named = {"images": [pictures]} if pictures else {}
    encoded = policy.processor(text=[policy.render_prompt(example)], return_tensors="pt", **named)
    assert count(example) == encoded["input_ids"].shape[1]


@pytest.mark.parametrize(
    ("width", "height", "tokens"), [(28, 28, 1), (280, 140, 50), (1000, 1000, 49), (5, 5, 1)]
)
def test_estimate_scales_down_to_the_budget(width, height, tokens):
    assert estimate_picture_tokens(width, height, max_pixels=39_200) == tokens


def test_a_policy_is_kept_with_the_table_of_what_trained(text_folder, tmp_path, capfd):
    policy = add_noise(text_folder, LAST_BLOCKS)
    model = policy.model
    keep_policy(policy, tmp_path)
    loaded = load_policy(tmp_path / "policy").model.state_dict()
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""
    assert all(loaded[name].equal(value) for name, value in model.state_dict().items())
    rows = tabulate_trainable(model)
    assert json.loads((tmp_path / "trainable.json").read_text()) == [vars(row) for row in rows]
    trained = {row.part for row in rows if row.num_trainable}
    assert trained == {"language block 1", "language block 2"}
    assert (tmp_path / "trainable.txt").read_text() == format_trainable(rows) + "\n"


TRL = logging.getLogger("trl.trainer.grpo_trainer")


def test_unscored_completions_are_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    with silence_libraries():
        TRL.warning("All reward functions returned None for the following kwargs:\n{'label': 1}")
        TRL.warning("another warning")
    TRL.warning("All reward functions returned None, outside")
    assert [one.getMessage() for one in caplog.records] == [
        "another warning",
        "All reward functions returned None, outside",
    ]
