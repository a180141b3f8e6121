"""Features of published models: which are there, where they are kept, and what is said of them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BertConfig, BertModel, BertTokenizerFast, Dinov2Config, Dinov2Model

from groupwise.core import Example, Message, read_json, read_picture
from groupwise.evaluation.baselines import JOINT, Candidate
from groupwise.evaluation.report.phrases import format_share
from groupwise.flow import policies, probing
from groupwise.flow.probing import Probes
from groupwise.models import SENTENCES, TOWER, load_policy
from groupwise.pipeline import StepContext


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with tiny random embedders."""
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    words = tmp_path / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog"]))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    for name, model in (
        (SENTENCES, BertModel(BertConfig(vocab_size=7, intermediate_size=8, **sizes))),
        (TOWER, Dinov2Model(Dinov2Config(mlp_ratio=1, image_size=28, patch_size=14, **sizes))),
    ):
        folder = tmp_path / "cache" / "models" / f"{name}-abc"
        model.save_pretrained(folder)
        if name == SENTENCES:
            BertTokenizerFast(str(words)).save_pretrained(folder)
    return tmp_path / "cache"


def open_probes(folder, train, *, test=(), base="tiny-qwen2"):
    config = SimpleNamespace(
        model=SimpleNamespace(
            is_tiny=base.startswith("tiny"), dtype="float32", max_pixels=None, quantization=None
        ),
        evaluation=SimpleNamespace(batch_size=4),
    )
    folder.mkdir(exist_ok=True)
    context = StepContext(folder, folder, "baselines", is_resumed=False)
    return Probes(config, base, context, train, test)


def paint(path, colour):
    Image.new("RGB", (30, 20), colour).save(path)
    return read_picture(path)


def ask(*parts):
    return Example(str(parts[-1]), (Message("user", parts),), "yes", "a", {})


def test_what_is_left_out_has_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "empty"))
    rows = [ask("cat"), ask("dog")]
    assert open_probes(tmp_path / "a", rows).left_out == {
        "hidden states": "the base is tiny and random",
        "sentence embeddings": f"{SENTENCES} is not here: groupwise models fetch {SENTENCES}",
        "picture features": "there are no pictures",
    }
    monkeypatch.setattr(probing, "MAX_STATES", 2)
    assert "hidden states" not in open_probes(tmp_path / "a", rows, base="real").left_out
    many = open_probes(tmp_path / "a", rows, test=rows, base="real").left_out
    assert many["hidden states"] == "4 examples are more than 2"
    assert open_probes(tmp_path / "a", rows)(rows) == {}


def test_features_are_read_once_and_belong_to_their_examples(tmp_path, cache, monkeypatch):
    rows = [ask(text) for text in ("cat", "dog", "cat dog", "dog dog")]
    found = open_probes(tmp_path / "a", rows)(rows)["sentence embeddings"]
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    again = open_probes(tmp_path / "b", rows)(rows[::-1])["sentence embeddings"]
    assert np.allclose(again[::-1], found, atol=1e-5)
    assert not np.allclose(found[0], found[1], atol=1e-3)
    monkeypatch.setattr(probing, "embed_texts", None)
    kept = open_probes(tmp_path / "a", rows)(rows)["sentence embeddings"]
    assert np.array_equal(kept, found)


def test_several_pictures_are_joined_and_texts_stand_beside_them(tmp_path, cache):
    one, two = (paint(tmp_path / f"{colour}.png", colour) for colour in ("red", "blue"))
    rows = [ask(one, two, "cat"), ask(two, "dog")]
    found = open_probes(tmp_path / "a", rows)(rows)
    pictures = found["picture features"]
    assert pictures.shape == (2, 3 * 16)
    mean, low, high = np.split(pictures, 3, axis=1)
    assert np.allclose(mean[1], low[1])
    assert np.allclose(mean[1], high[1])
    assert (low[0] <= mean[0]).all()
    assert (mean[0] <= high[0]).all()
    assert found["picture features and sentence embeddings"].shape == (2, 3 * 16 + 8)
    alone = open_probes(tmp_path / "b", rows[1:])(rows[1:])["picture features"]
    assert np.allclose(alone[0], mean[1], atol=1e-4)


def test_hidden_states_of_blocks_and_poolings_are_told_apart(
    tmp_path, monkeypatch, text_folder, text_examples
):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "empty"))
    found = open_probes(tmp_path / "a", text_examples, base=str(text_folder))(text_examples)
    names = [name for name in found if name.startswith("hidden states of block ")]
    assert len(names) == len(found) >= 4
    assert len({rows.tobytes() for rows in found.values()}) == len(found)
    swapped = list(text_examples)[::-1]
    again = open_probes(tmp_path / "b", swapped, base=str(text_folder))(swapped)
    for name, rows in found.items():
        assert np.allclose(again[name][::-1], rows, atol=1e-3)
    policy = load_policy(text_folder)
    prompt = policy.tokenizer(policy.render_prompt(text_examples[0]), return_tensors="pt")
    with torch.inference_mode():
        states = policy.model(**prompt, output_hidden_states=True).hidden_states[1][0]
    mean, last = (found[f"hidden states of block 1, {how}"][0] for how in ("mean", "last token"))
    assert np.allclose(mean, states.mean(0), atol=1e-4)
    assert np.allclose(last, states[-1], atol=1e-4)


def test_the_winner_is_told_with_the_policy(tmp_path):
    rows = [ask("cat"), ask("dog")]
    probes = open_probes(tmp_path / "baselines", rows)
    probes.record([Candidate("words", 0.75, print), Candidate("nothing", 0.5, print)])
    told = policies._tell_winner(JOINT, tmp_path)
    assert told.note.endswith(
        f"; here words ({format_share(0.75)} in cross-validation on training rows)"
    )
    assert "此处为文字" in told.note_zh
    assert policies._tell_winner(JOINT, tmp_path / "elsewhere") == JOINT
    assert read_json(tmp_path / "baselines" / "joint.json", dict)["left_out"] == probes.left_out
