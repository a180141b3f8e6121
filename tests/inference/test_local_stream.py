"""Batches give what one by one gives; what one item lacks is that item's failure alone.

Batches are full, of one length, wait for no item beyond their window, and fit into memory. Workers
of a real Ray cluster on this machine give the same.
"""

import importlib.util
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from streams import ask, draw

from groupwise.core import (
    Completion,
    ConfigError,
    DataError,
    Message,
    ModelError,
    make_example,
    read_picture,
)
from groupwise.inference import many_machines
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import (
    LocalStream,
    form_batches,
    is_out_of_memory,
    prepare_ahead,
)
from groupwise.inference.many_machines import RayStream
from groupwise.inference.settings import RaySettings, Sampling, StreamSettings
from groupwise.inference.stream import Failure, generate_groups

GREEDY = Sampling(max_new_tokens=6)


def run(policy, *groups, backend=None, sampling=GREEDY, **settings):
    """Return the outcomes of each group."""
    backend, named = backend or LocalStream(LocalModel(policy)), StreamSettings(**settings)
    numbered = [(str(number), group) for number, group in enumerate(groups)]
    found = list(generate_groups(backend, numbered, sampling=sampling, settings=named))
    assert [id_ for id_, _ in found] == [id_ for id_, _ in numbered]
    return [outcomes for _, outcomes in found]


def list_causes(outcomes):
    return [one.cause if isinstance(one, Failure) else "" for one in outcomes]


@pytest.fixture(scope="module")
def photos(photo_groups):
    return [examples for _, examples in photo_groups]


@pytest.fixture(scope="module")
def alone(vision, photos):
    """What the model itself says to each example alone."""
    engine = LocalModel(vision, batch_size=1)
    return [
        [found for [found] in engine.generate(examples, sampling=GREEDY)] for examples in photos
    ]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 16])
def test_batches_give_the_texts_of_one_by_one(vision, photos, alone, batch_size):
    assert len({completion.text for found in alone for completion in found}) > 3
    assert run(vision, *photos, batch_size=batch_size) == alone


def test_a_penalty_does_not_make_batches_different(vision, photos):
    sampling = Sampling(max_new_tokens=12, repetition_penalty=1.3)
    batched = run(vision, *photos, sampling=sampling)
    assert batched == run(vision, *photos, sampling=sampling, batch_size=1)
    assert batched != run(vision, *photos, sampling=Sampling(max_new_tokens=12))


def test_text_alone(text, text_examples):
    expected = LocalModel(text, batch_size=1).generate(text_examples, sampling=GREEDY)
    first, second = run(text, text_examples[:5], text_examples[5:], batch_size=4)
    assert [*first, *second] == [completion for [completion] in expected]


@pytest.mark.slow
def test_a_group_of_200_pictures(vision, picture_examples, alone):
    many, small = [picture_examples[n % 8] for n in range(200)], picture_examples[:1]
    first, found, last = run(vision, small, many, small, batch_size=32)
    assert (len(first), len(found), len(last)) == (1, 200, 1)
    assert found[8:] == found[:192]
    assert first == last == found[:1]


def test_an_example_with_several_pictures_and_larger_ones(vision, picture_examples, tmp_path):
    pictures = [p for example in picture_examples[:3] for p in example.pictures]
    several = picture_examples[0].with_pictures(pictures)
    large = ask("Is this what the task says?", draw(tmp_path / "large.jpg", (900, 700), 3))
    groups, settings = ([several, large], picture_examples), {"max_pixels": 50_000}
    assert run(vision, *groups, **settings) == run(vision, *groups, batch_size=1, **settings)


def test_a_broken_picture_is_a_failure_of_its_item(vision, picture_examples, tmp_path):
    whole = draw(tmp_path / "whole.jpg", (300, 200))
    torn = tmp_path / "torn.jpg"
    torn.write_bytes(whole.read_bytes()[:1500])
    (tmp_path / "text.png").write_text("这不是图片")
    gone, line = draw(tmp_path / "gone.png", (30, 30)), draw(tmp_path / "line.png", (4000, 2))
    changed = draw(tmp_path / "changed.png", (60, 60), 1)
    broken = [ask("a", path) for path in (torn, tmp_path / "text.png", gone, line, changed)]
    gone.unlink()
    draw(changed, (60, 60), 2)
    assert read_picture(changed) != broken[-1].pictures[0]
    good = picture_examples[0]
    first, second = run(vision, [good, *broken, good], [good])
    assert list_causes(first) == ["", *5 * ["picture"], ""]
    words = ("torn.jpg", "text.png", "gone.png", "aspect ratio", "has changed")
    for failure, word in zip(first[1:-1], words, strict=True):
        assert word in failure.message
    assert second == [first[0]] == [first[-1]]


def test_what_a_processor_takes_only_alone_is_asked_alone(text, text_examples, monkeypatch):
    expected = run(text, text_examples[:3])
    encode = LocalModel.encode_batch

    def refuse_several(self, examples, pictures):
        if len(examples) > 1:
            raise DataError("these do not go together")
        return encode(self, examples, pictures)

    monkeypatch.setattr(LocalModel, "encode_batch", refuse_several)
    assert run(text, text_examples[:3]) == expected


def test_a_prompt_that_is_too_long_is_a_failure_of_its_item(text, text_examples, monkeypatch):
    config = text.model.config.get_text_config()
    monkeypatch.setattr(config, "max_position_embeddings", 100)
    [found] = run(replace(text), [text_examples[0], ask("word " * 200), text_examples[1]])
    assert list_causes(found) == ["", "too_long", ""]
    assert "the model takes 100 together" in found[1].message


def test_a_policy_without_eyes_is_an_error_of_the_run(text, picture_examples):
    with pytest.raises(ModelError, match="takes no pictures"):
        run(text, picture_examples)


def limit_memory(backend, monkeypatch, most_tokens, error):
    """Let batches of more tokens, padding and answers included, run out of memory."""
    sizes = []
    generate = backend.model.generate_batch

    def run_out(batch, *, sampling):
        rows, length = batch.inputs["input_ids"].shape
        sizes.append(rows)
        if rows * (length + sampling.max_new_tokens) > most_tokens:
            raise error
        return generate(batch, sampling=sampling)

    monkeypatch.setattr(backend.model, "generate_batch", run_out)
    return sizes


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        pytest.param(
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            marks=pytest.mark.slow,
        ),
        pytest.param(MemoryError(), marks=pytest.mark.slow),
    ],
    ids=["cuda", "cpu", "python"],
)
def test_a_batch_that_is_too_large_is_halved_and_that_is_remembered(
    text, text_examples, monkeypatch, error
):
    groups = [text_examples] * 4
    expected = run(text, *groups)
    longest = max(len(text.tokenizer(text.render_prompt(e))["input_ids"]) for e in text_examples)
    backend = LocalStream(LocalModel(text))
    sizes = limit_memory(backend, monkeypatch, 4 * (longest + 6), error)
    assert run(text, *groups, backend=backend, batch_size=16) == expected
    assert sizes[:3] == [16, 8, 4]
    assert sizes.count(16) + sizes.count(8) <= 4
    num_calls = len(sizes)
    assert run(text, *groups, backend=backend, batch_size=16) == expected
    assert max(sizes[num_calls:]) < 16


def test_out_of_memory_alone_is_a_failure_of_its_item(text, text_examples, monkeypatch):
    long = ask("word " * 100)
    group = [*text_examples[:3], long, *text_examples[3:]]
    [expected] = run(text, group)
    backend = LocalStream(LocalModel(text))
    limit_memory(backend, monkeypatch, 100, MemoryError())
    [found] = run(text, group, backend=backend)
    assert list_causes(found) == ["memory" if one is long else "" for one in group]
    assert [*found[:3], *found[4:]] == [*expected[:3], *expected[4:]]


def test_another_error_of_the_model_is_not_hidden(text, text_examples, monkeypatch):
    backend = LocalStream(LocalModel(text))
    limit_memory(backend, monkeypatch, 0, RuntimeError("device-side assert triggered"))
    with pytest.raises(RuntimeError, match="assert"):
        run(text, text_examples, backend=backend)


def test_running_out_while_pictures_are_decoded_or_encoded_is_a_failure_of_the_item(
    vision, picture_examples, monkeypatch
):
    whole, encode = Image.new("RGB", (64, 64)), LocalModel.encode_batch

    def open_some(picture, limit):
        if picture == picture_examples[1].pictures[0]:
            raise MemoryError
        return whole

    def encode_some(self, examples, pictures):
        if picture_examples[2] in examples:
            raise MemoryError
        return encode(self, examples, pictures)

    monkeypatch.setattr("groupwise.inference.local_stream.open_limited", open_some)
    monkeypatch.setattr(LocalModel, "encode_batch", encode_some)
    [found] = run(vision, picture_examples[:4])
    assert list_causes(found) == ["", "memory", "memory", ""]


def test_placeholders_that_somebody_writes_are_words(vision, picture_examples, tmp_path):
    (picture,) = picture_examples[0].pictures
    line = ask("<|image_pad|>", draw(tmp_path / "line.png", (4000, 2)))
    example = make_example([Message("user", ("<|image_pad|>", picture))], cluster="")
    [found] = run(vision, [example, line, example])
    assert list_causes(found) == ["", "picture", ""]
    [[expected]] = LocalModel(vision).generate([example], sampling=GREEDY)
    assert isinstance(expected, Completion)
    assert found[0] == found[2] == expected


def form(lengths, batch_size=4, window=12):
    batches = form_batches(lengths, measure=list, batch_size=batch_size, window=window)
    return [[number for number, _ in batch] for batch in batches]


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 5), st.integers(1, 4))
def test_every_item_is_in_one_full_batch_of_its_window(lengths, batch_size, look_ahead):
    window = batch_size * look_ahead
    batches = form(lengths, batch_size, window)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    assert sum(len(batch) < batch_size for batch in batches) <= 1
    for batch in batches:
        assert len({number // window for number in batch}) == 1
    assert [b[0] // window for b in batches] == sorted(b[0] // window for b in batches)


def test_a_window_is_cut_into_batches_of_similar_length_that_keep_the_order():
    assert form([1, 9, 5] * 4) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    assert form([7] * 8) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_batches_are_prepared_in_order_one_ahead_and_what_that_raises_begins_no_more():
    begun = []
    with ThreadPoolExecutor(1) as thread:
        prepared = prepare_ahead(count(), lambda n: begun.append(n) or 2 * n, thread=thread)
        for number, found in enumerate(islice(prepared, 20)):
            assert found == 2 * number
            assert len(begun) <= number + 2
    begun.clear()

    def prepare(number):
        begun.append(number)
        if number == 2:
            raise MemoryError("decode")

    with pytest.raises(MemoryError, match="decode"), ThreadPoolExecutor(1) as thread:
        for _ in prepare_ahead(range(1000), prepare, thread=thread):
            pass
    assert len(begun) < 10


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (torch.cuda.OutOfMemoryError("x"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
        (RuntimeError("shape '[2, 3]' is invalid for input of size 4"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_only_lack_of_memory_counts(error, is_memory):
    assert is_out_of_memory(error) is is_memory


def test_a_real_allocation_that_is_too_large():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_whoever_leaves_early_leaves_no_thread(vision, picture_examples):
    groups = [(str(n), picture_examples[:2]) for n in range(100)]
    stream, settings = LocalStream(LocalModel(vision)), StreamSettings(batch_size=2)
    outcomes = generate_groups(stream, groups, sampling=GREEDY, settings=settings)
    assert next(outcomes)[0] == "0"
    assert any(one.name.startswith("pictures") for one in threading.enumerate())
    outcomes.close()
    assert not any(one.name.startswith("pictures") for one in threading.enumerate())


HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_one_sentence_says_what_to_install():
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[ray\]'"):
        RayStream(RaySettings(), "anything")


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'groupwise[ray]'")
@pytest.mark.usefixtures("cluster")
class TestCluster:
    def test_two_workers_give_what_this_process_gives(
        self, taught_folder, vision, photos, picture_examples, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(taught_folder.parent)
        torn = draw(tmp_path / "torn.png", (60, 60))
        torn.write_bytes(torn.read_bytes()[:60])
        groups = [*photos, [ask("a", torn)], [picture_examples[n % 8] for n in range(60)]]
        expected = run(vision, *groups, batch_size=4)
        # A slice ends in the middle of the last group.
        monkeypatch.setattr(many_machines, "_SLICE", 40)
        backend = RayStream(RaySettings(), taught_folder.name, dtype="float32")
        found = run(None, *groups, backend=backend, batch_size=4)
        assert found == expected
        assert list_causes(found[-2]) == ["picture"]

    def test_what_a_worker_cannot_do_is_one_sentence(self, taught_text_folder, photos, tmp_path):
        for model, told in (
            (tmp_path / "none", r"cannot load the model .*none"),
            (taught_text_folder, "takes no pictures"),
        ):
            with pytest.raises(ModelError, match=told):
                run(None, *photos, backend=RayStream(RaySettings(), model), batch_size=4)
