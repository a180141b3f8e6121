"""A backend that keeps features of pictures says what one without does, and encodes each once."""

import pytest
import torch
from streams import ask, draw

from groupwise.core import Example, Message, make_example
from groupwise.inference.engine import Sampling
from groupwise.inference.local import LocalEngine
from groupwise.inference.streaming.encoding import Encoder
from groupwise.inference.streaming.groups import generate_groups
from groupwise.inference.streaming.local import LocalBackend
from groupwise.inference.streaming.pictures import open_memory
from groupwise.inference.streaming.work import Failure, StreamSettings, WorkGroup, WorkItem

GREEDY = Sampling(max_new_tokens=5)


def run(policy, groups, *, picture_mib=0.0, backend=None, **settings):
    backend = backend or LocalBackend(LocalEngine(policy), picture_mib=picture_mib)
    stream = StreamSettings(batch_size=3, **settings)
    return list(generate_groups(backend, groups, sampling=GREEDY, settings=stream))


@pytest.fixture(scope="module")
def few_shots(picture_examples) -> list[WorkGroup]:
    """Prompts that show the same pictures in other orders."""
    pictures = [example.pictures[0] for example in picture_examples[:4]]

    def show(*places: int) -> Example:
        parts = [part for n in places for part in ("This is ", str(n), ": ", pictures[n])]
        return make_example([Message("user", parts)], cluster="")

    return [WorkGroup("a", (show(0, 1, 2), show(2, 0))), WorkGroup("b", (show(3, 2), show(1)))]


@pytest.fixture
def encoded(vision, monkeypatch) -> list[int]:
    """How many pictures went through the vision tower together."""
    sizes: list[int] = []
    encode = vision.model.get_image_features

    def count(pixels, grids, **named):
        sizes.append(len(grids))
        return encode(pixels, grids, **named)

    monkeypatch.setattr(vision.model, "get_image_features", count)
    return sizes


def test_texts_are_those_without_it_and_each_picture_is_encoded_once(vision, few_shots, encoded):
    expected = run(vision, few_shots)
    assert not encoded
    backend = LocalBackend(LocalEngine(vision), picture_mib=1)
    assert run(vision, few_shots, backend=backend) == expected
    assert sum(encoded) == 4
    assert run(vision, few_shots, backend=backend) == expected
    assert sum(encoded) == 4


def test_mixed_prompts_with_little_memory(vision, photo_groups, encoded):
    expected = run(vision, photo_groups)
    assert len({one.text for outcome in expected for one in outcome.completions}) > 3
    assert run(vision, photo_groups, picture_mib=64) == expected
    num_once = sum(encoded)
    backend = LocalBackend(LocalEngine(vision), picture_mib=1e-6)
    for _ in range(2):
        assert run(vision, photo_groups, backend=backend) == expected
    assert sum(encoded) > 2 * num_once


def test_a_picture_that_was_processed_twice_has_its_features_both_times(vision, few_shots):
    item = WorkItem(0, few_shots[1].examples[1])
    memory = open_memory(vision, max_mib=1e-6)
    twice = [
        Encoder(vision, other).encode(item, max_pixels=None, max_new_tokens=1).pictures[0]
        for other in (memory, open_memory(vision, max_mib=1))
    ]
    assert twice[0].key == twice[1].key
    one, other = memory.look(twice).pooler_output
    assert torch.equal(one, other)


def test_those_that_were_not_used_for_longest_go_first(vision, few_shots, encoded):
    size = 4 * vision.model.config.get_text_config().hidden_size
    examples = [example for group in few_shots for example in group.examples]
    shown = Encoder(vision).encode(WorkItem(0, examples[0]), max_pixels=None, max_new_tokens=1)
    num_tokens = int((shown.inputs["input_ids"] == vision.processor.image_token_id).sum())
    memory = open_memory(vision, max_mib=num_tokens * size / 2**20)
    encoder = Encoder(vision, memory)

    def look(example: Example) -> int:
        row = encoder.encode(WorkItem(0, example), max_pixels=None, max_new_tokens=1)
        encoded.clear()
        memory.look(row.pictures)
        return sum(encoded)

    assert look(examples[0]) == 3, "pictures 0, 1 and 2 fill it"
    assert look(examples[1]) == 0, "2 and 0 are used again"
    assert look(examples[2]) == 1, "3 is new and takes the place of 1"
    assert look(examples[1]) == 0
    assert look(examples[3]) == 1, "1 is gone"


def test_tokens_are_those_of_the_processor(vision, few_shots, picture_examples):
    encoder = Encoder(vision, open_memory(vision, max_mib=1))
    for example in (*few_shots[0].examples, *picture_examples):
        item = WorkItem(0, example)
        own = Encoder(vision).encode(item, max_pixels=None, max_new_tokens=1).inputs
        found = encoder.encode(item, max_pixels=None, max_new_tokens=1).inputs
        assert own.keys() - found.keys() == {"pixel_values"}
        for name, value in found.items():
            assert torch.equal(own[name], value), name


def test_another_pixel_limit_is_another_picture(vision, few_shots, encoded):
    backend = LocalBackend(LocalEngine(vision), picture_mib=1)
    for max_pixels, num_encoded in ((1000, 4), (None, 8), (1000, 8)):
        run(vision, few_shots, backend=backend, max_pixels=max_pixels)
        assert sum(encoded) == num_encoded


def test_what_cannot_be_read_is_a_failure_of_its_item(vision, few_shots, tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    line = draw(tmp_path / "line.png", (4000, 2))
    bad = [ask("a", tmp_path / "text.png"), ask("a", line), ask("<|image_pad|>", line)]
    groups = [*few_shots, WorkGroup("bad", (*bad, *few_shots[0].examples))]
    first, second, mixed = run(vision, groups, picture_mib=1)
    assert [first, second] == run(vision, few_shots)
    assert mixed.completions[3:] == first.completions
    assert {one.cause for one in mixed.failures} == {"picture"}
    assert [isinstance(one, Failure) for one in mixed.completions[:3]] == [True] * 3


def test_placeholders_that_somebody_writes_are_words(vision, picture_examples):
    (picture,) = picture_examples[0].pictures
    example = make_example([Message("user", ("<|image_pad|>", picture))], cluster="")
    groups = [WorkGroup("a", (example,))]
    (outcome,) = run(vision, groups, picture_mib=1)
    assert not outcome.failures
    assert [outcome] == run(vision, groups)


def test_a_model_that_cannot_be_given_features_is_asked_as_usual(text, text_examples):
    assert open_memory(text, max_mib=1) is None
    groups = [WorkGroup("a", tuple(text_examples))]
    assert run(text, groups, picture_mib=1) == run(text, groups)
