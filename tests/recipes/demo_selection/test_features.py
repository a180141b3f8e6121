"""Embeddings of a tiny CLIP model: cached by content, joined, and taught by captions."""

import shutil
from dataclasses import replace

import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer

from groupwise.core import DataError, ModelError, TrainingError, read_picture
from groupwise_drawn.dialects import DIALECTS, read_dialects, write_dialects
from groupwise_recipes.demo_selection.features import ClipFeatures, join_features
from groupwise_recipes.demo_selection.tiny_clip import write_tiny_clip


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    return read_dialects(write_dialects(folder, seed=1, sizes={"train": 40}))


@pytest.fixture(scope="module")
def clip(items, tmp_path_factory):
    captioned = [(item.picture, item.scene.caption) for item in items]
    folder = tmp_path_factory.mktemp("clip")
    questions = [item.question for item in items]
    return write_tiny_clip(folder, captioned, texts=questions, num_steps=40, batch_size=16)


def test_embeddings_have_length_one_and_do_not_depend_on_the_others(clip, items, tmp_path):
    features = ClipFeatures(clip, cache=tmp_path / "a")
    pictures = [item.picture for item in items]
    texts = [item.question for item in items]
    for embedded in (features.embed_pictures(pictures), features.embed_texts(texts)):
        assert embedded.shape == (40, 512)
        assert torch.allclose(embedded.norm(dim=-1), torch.ones(40), atol=1e-5)
    alone = ClipFeatures(clip, cache=tmp_path / "b")
    assert torch.allclose(
        alone.embed_pictures(pictures[:1]), features.embed_pictures(pictures)[:1], atol=1e-5
    )
    assert torch.allclose(alone.embed_texts(texts[:1]), features.embed_texts(texts)[:1], atol=1e-5)


def test_what_was_embedded_is_read_from_disk_and_known_by_its_content(clip, items, tmp_path):
    first = ClipFeatures(clip, cache=tmp_path).embed_pictures([items[0].picture])
    moved = tmp_path / "moved.png"
    shutil.copy(items[0].picture.path, moved)
    gone = replace(read_picture(moved), path=tmp_path / "gone.png")
    assert ClipFeatures(clip, cache=tmp_path).embed_pictures([gone]).equal(first)
    Image.new("RGB", (128, 128)).save(moved)
    other = ClipFeatures(clip, cache=tmp_path).embed_pictures([read_picture(moved)])
    assert not other.allclose(first)


def test_captions_find_their_pictures(clip, items, tmp_path):
    features = ClipFeatures(clip, cache=tmp_path)
    pictures = features.embed_pictures([item.picture for item in items])
    captions = features.embed_texts([item.scene.caption for item in items])
    ranks = (captions @ pictures.mT).argsort(dim=-1, descending=True).tolist()
    mean_rank = sum(row.index(place) for place, row in enumerate(ranks)) / 40
    assert mean_rank < 8  # 19.5 by chance


def test_words_that_stand_in_no_caption_are_learned_whole(clip):
    tokenizer = AutoTokenizer.from_pretrained(clip)
    assert tokenizer.tokenize("Reply in Kelo") == ["Reply", "Ġin", "ĠKelo"]


def test_every_word_of_a_question_counts(clip, tmp_path):
    features = ClipFeatures(clip, cache=tmp_path)
    questions = [f"{words} {name}" for words in ("Reply in", "Say it in") for name in DIALECTS]
    embedded = features.embed_texts(questions)
    apart = torch.cdist(embedded, embedded) + torch.eye(len(questions))
    assert apart.min() > 0.05


def test_a_table_knows_what_it_was_made_of(clip, items, tmp_path):
    features = ClipFeatures(clip, cache=tmp_path)
    triples = [(item.id, item.picture, item.question) for item in items]
    table = features.tabulate(triples)
    assert table.ids == tuple(item.id for item in items)
    assert table.joined.equal(join_features(table.pictures, table.texts))
    assert features.tabulate(triples).digest == table.digest
    assert features.tabulate(triples[1:]).digest != table.digest
    with pytest.raises(DataError, match="two items have the same id"):
        features.tabulate(triples[:1] * 2)


def test_joined_features_are_means_of_what_has_length_one():
    pictures, texts = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    assert join_features(pictures, texts).allclose(torch.tensor([[0.5**0.5, 0.5**0.5]]))


def test_no_clip_model_and_too_few_captions_are_refused(items, tmp_path):
    with pytest.raises(ModelError, match="cannot load the CLIP model"):
        ClipFeatures(tmp_path, cache=tmp_path)
    with pytest.raises(TrainingError, match="too few captioned pictures for a batch; got 1"):
        write_tiny_clip(tmp_path, [(items[0].picture, "red")])
