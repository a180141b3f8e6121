"""Rows, prompts and pictures of a round."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers import VideoLlama3ImageProcessor

from groupwise.core import TrainingError
from groupwise.training.fast.pictures import Pictures, find_pictures, process_pictures_once
from groupwise.training.fast.round import (
    Groups,
    Round,
    find_dead_rows,
    number_prompts,
    shuffle_groups,
    split_batch,
    split_groups,
)
from groupwise.training.fast.shared import Packing, Trunk

NUMBERS = st.lists(st.integers(0, 4), min_size=1, max_size=16).map(torch.tensor)
SORTED = NUMBERS.map(lambda numbers: numbers.sort().values)


def name(prompt, picture=None):
    row = {"prompt": [{"role": "user", "content": prompt}]}
    return row if picture is None else row | {"images": [picture]}


@given(st.lists(st.sampled_from("abc"), min_size=1))
def test_rows_of_one_prompt_that_follow_each_other_share_a_number(prompts):
    numbers = number_prompts([name(prompt) for prompt in prompts])
    assert numbers[0] == 0
    for before, after, one, other in zip(numbers, numbers[1:], prompts, prompts[1:], strict=False):
        assert after - before == (one != other)


def test_pictures_are_part_of_a_prompt():
    red, blue = (Image.new("RGB", (4, 4), colour) for colour in ("red", "blue"))
    rows = [name("a", red), name("a", red.copy()), name("a", blue), name("b", blue), name("b")]
    assert number_prompts(rows) == [0, 0, 1, 2, 3]
    singles = [{"prompt": "a", "image": picture} for picture in (red, red, blue)]
    assert number_prompts(singles) == [0, 0, 1]


def test_where_pictures_stand_is_part_of_a_prompt():
    picture, image = Image.new("RGB", (4, 4)), {"type": "image"}
    text = {"type": "text", "text": "a"}
    orders = [
        [image, text, image],
        [image, text, image],
        [image, image, text],
        [text, image, image],
    ]
    rows = [name(parts) | {"images": [picture, picture]} for parts in orders]
    assert number_prompts(rows) == [0, 0, 1, 2]


@given(NUMBERS)
def test_groups_point_at_the_first_row_of_each_prompt(numbers):
    groups = Groups.of(numbers)
    assert len(groups.first_rows) == len(set(numbers.tolist()))
    assert list(groups.numbers) == sorted(set(numbers.tolist()))
    for number, first in zip(groups.numbers, groups.first_rows.tolist(), strict=True):
        assert numbers.tolist().index(number) == first
    assert torch.tensor(groups.numbers)[groups.prompt_of_row].equal(numbers)


@given(SORTED, st.integers(0, 2**31))
def test_shuffling_keeps_groups_whole_and_in_order(numbers, seed):
    torch.manual_seed(seed)
    order = shuffle_groups(numbers)
    assert sorted(order.tolist()) == list(range(len(numbers)))
    shuffled = numbers[order]
    assert len(shuffled.unique_consecutive()) == len(shuffled.unique())
    for number in numbers.unique():
        assert order[shuffled == number].diff().ge(0).all()


def test_every_order_of_the_groups_comes_up():
    torch.manual_seed(0)
    numbers = torch.tensor([0, 0, 1, 1, 2, 2])
    assert len({tuple(shuffle_groups(numbers).tolist()) for _ in range(99)}) == 6


@given(NUMBERS, st.integers(1, 6), st.data())
def test_chunks_split_no_group(numbers, max_rows, data):
    size = data.draw(st.integers(1, len(numbers)))
    rows = torch.arange(len(numbers))[-size:]
    chunks = split_groups(rows, numbers, max_rows)
    assert torch.cat(chunks).equal(rows)
    runs = numbers[rows].unique_consecutive(return_counts=True)[1].tolist()
    for chunk in chunks:
        inside = numbers[chunk].unique_consecutive()
        assert len(chunk) <= max_rows or len(inside) == 1
    # Runs of one prompt are never cut.
    ends = set(torch.tensor(runs).cumsum(0).tolist())
    assert set(torch.tensor([len(chunk) for chunk in chunks]).cumsum(0).tolist()) <= ends


def test_chunks_are_as_large_as_they_may_be():
    numbers = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2, 2, 3])
    chunks = split_groups(torch.arange(10), numbers, 4)
    assert [chunk.tolist() for chunk in chunks] == [[0, 1, 2, 3], [4, 5, 6, 7, 8], [9]]


REWARD = st.sampled_from([0.0, 0.5, 1.0, float("nan")])


@given(st.lists(st.lists(st.lists(REWARD, min_size=2, max_size=2), min_size=3, max_size=3)))
def test_dead_is_a_group_whose_known_rewards_are_equal(groups):
    rewards = torch.tensor(groups).reshape(-1, 2)
    dead = find_dead_rows(rewards, group_size=3).view(-1, 3)
    for group, found in zip(groups, dead, strict=True):
        known = [row for row in torch.tensor(group) if not row.isnan().all()]
        totals = {float(row.nansum()) for row in known}
        assert found.tolist() == [len(totals) <= 1] * 3


@given(NUMBERS, st.integers(0, 2**31))
def test_shuffling_a_batch_reorders_all_that_has_rows(numbers, seed):
    torch.manual_seed(seed)
    order = shuffle_groups(numbers)
    batch = {"prompt_numbers": numbers, "list": numbers.tolist(), "none": None}
    torch.manual_seed(seed)
    (taken,) = split_batch(batch | {"total": torch.tensor(3)}, 1, is_shuffled=False)
    assert taken["prompt_numbers"].equal(numbers[order])
    assert taken["list"] == numbers[order].tolist()
    assert (taken["total"], taken["none"]) == (3, None)


TWO_GROUPS = torch.tensor([0, 0, 1, 1])
ROUND = Groups.of(TWO_GROUPS)


def make_features(counts):
    """Return features of so many pictures, each with a number of its own, on three levels."""
    parts = [torch.full((n + 1, 2), float(n)) for n in range(sum(counts))]
    deep = [[part + 10 * level for part in parts] for level in (1, 2)]
    return SimpleNamespace(pooler_output=tuple(parts), deepstack_features=deep)


def test_features_of_any_of_the_prompts_are_found_again():
    round_ = Round(ROUND)
    assert round_.find_features(ROUND) is None
    round_.keep_features(ROUND, [2, 1], make_features([2, 1]))
    both = round_.find_features(ROUND)
    assert [part[0, 0].item() for part in both.pooler_output] == [0, 1, 2]
    assert [[p[0, 0].item() for p in level] for level in both.deepstack_features] == [
        [10, 11, 12],
        [20, 21, 22],
    ]
    second = round_.find_features(Groups.of(torch.tensor([1])))
    assert [part.shape for part in second.pooler_output] == [(3, 2)]
    assert round_.find_features(Groups.of(torch.tensor([1, 2]))) is None
    flat = make_features([1, 1])
    del flat.deepstack_features
    round_ = Round(ROUND)
    round_.keep_features(ROUND, [1, 1], flat)
    assert len(round_.find_features(ROUND).pooler_output) == 2


def test_a_trunk_is_found_where_every_prompt_and_row_is_known():
    round_ = Round(ROUND)
    first = Groups.of(TWO_GROUPS[:2])
    round_.keep_trunk(first, [0, 1], Trunk(torch.ones(1, 3, 2), torch.ones(2, 2, 2)))
    assert round_.find_trunk(first, [1], prefix=3, tail=2) is not None
    assert round_.find_trunk(first, [0, 1], prefix=3, tail=2) is not None
    assert round_.find_trunk(ROUND, [0, 1], prefix=3, tail=2) is None
    assert round_.find_trunk(first, [0, 2], prefix=3, tail=2) is None


@given(*[st.integers(1, 5)] * 4)
def test_a_trunk_keeps_what_is_real_in_wider_and_narrower_batches(prefix, tail, wide, long):
    """Prompts end where they ended, completions start where they started."""
    round_ = Round(ROUND)
    trunk = Trunk(torch.rand(2, prefix, 3), torch.rand(4, tail, 3))
    round_.keep_trunk(ROUND, range(4), trunk)
    found = round_.find_trunk(ROUND, [3, 1], prefix=wide, tail=long)
    assert found.prefixes.shape == (2, wide, 3)
    assert found.tails.shape == (2, long, 3)
    same = min(prefix, wide)
    assert found.prefixes[:, -same:].equal(trunk.prefixes[:, -same:])
    assert not found.prefixes[:, :-same].any()
    same = min(tail, long)
    assert found.tails[:, :same].equal(trunk.tails[[3, 1], :same])
    assert not found.tails[:, same:].any()


@st.composite
def masks(draw):
    """Rows of padding, real tokens with or without gaps, and padding; some rows have none."""
    width = draw(st.integers(1, 6))
    row = st.lists(st.integers(0, 1), min_size=width, max_size=width)
    return torch.tensor(draw(st.lists(row, min_size=1, max_size=4)))


def is_inside(row):
    """Whether each token is between the first and the last real one."""
    real = [place for place, value in enumerate(row) if value]
    return [bool(real) and real[0] <= place <= real[-1] for place in range(len(row))]


@given(masks())
def test_only_what_is_before_and_behind_is_left_out(mask):
    packing, inside = Packing.of(mask), torch.tensor([is_inside(row) for row in mask.tolist()])
    rows = torch.arange(mask.numel(), dtype=torch.float).add(1).view(mask.shape)
    kept = rows[inside] if inside.any() else rows.flatten()
    assert packing.pack(rows).tolist() == [kept.tolist()]
    assert packing.num_tokens == len(kept)


@given(masks())
def test_what_was_left_out_comes_back_as_zeros(mask):
    packing = Packing.of(mask)
    rows = torch.rand(*mask.shape, 2) + 1
    found = packing.unpack(packing.pack(rows))
    is_kept = packing.unpack(torch.ones(1, packing.num_tokens)).bool()
    assert found.equal(rows * is_kept[..., None])


COUNTS = st.lists(st.integers(0, 3), min_size=1)


def choose(data, counts):
    places = st.integers(0, len(counts) - 1)
    return [data.draw(st.lists(places, min_size=1)) for _ in range(2)]


def number(length):
    return torch.arange(length)[:, None]


def find_parts(chosen, counts):
    starts = torch.tensor([0, *counts]).cumsum(0).tolist()
    return [part for row in chosen for part in range(starts[row], starts[row + 1])]


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=3), min_size=1),
    st.data(),
)
def test_patches_and_grids(sizes, data):
    chosen, _ = choose(data, sizes)
    grid = torch.tensor([[1, *size] for row in sizes for size in row]).reshape(-1, 3)
    fields = {"pixel_values": number(int(grid.prod(-1).sum())), "image_grid_thw": grid}
    counts = [len(row) for row in sizes]
    taken = Pictures.of(fields, counts).take(torch.tensor(chosen))
    expected = find_parts(chosen, [sum(h * w for h, w in row) for row in sizes])
    assert taken.copy("pixel_values").flatten().tolist() == expected
    grids = [[1, *size] for row in chosen for size in sizes[row]]
    assert taken.copy("image_grid_thw").tolist() == grids
    assert taken.count() == taken.count_features() == [counts[row] for row in chosen]
    assert taken.count_tiles() is None


@given(COUNTS, st.data())
def test_entries_of_pictures(counts, data):
    """Rows are taken from rows that were taken before."""
    first, _ = choose(data, counts)
    second, _ = choose(data, first)
    fields = {name: number(sum(counts)) for name in ("pixel_values", "image_sizes")}
    taken = Pictures.of(fields, counts).take(torch.tensor(first)).take(torch.tensor(second))
    rows = [first[place] for place in second]
    for found in taken.copy_fields().values():
        assert found.flatten().tolist() == find_parts(rows, counts)
    assert taken.count_features() == [counts[row] for row in rows]
    assert taken.count_tiles() is None


@given(COUNTS, st.data())
def test_tiles(counts, data):
    chosen, _ = choose(data, counts)
    tiles = [2 * count + (count > 0) for count in counts]
    pictures = Pictures.of({"pixel_values": number(sum(tiles))}, counts, tiles)
    taken = pictures.take(torch.tensor(chosen))
    assert taken.copy("pixel_values").flatten().tolist() == find_parts(chosen, tiles)
    assert taken.count() == [counts[row] for row in chosen]
    assert taken.count_features() == [tiles[row] for row in chosen]
    assert taken.count_tiles() == (taken.count_features() if any(counts) else None)


@given(COUNTS, st.data())
def test_all_pictures_of_a_row_in_one_entry(counts, data):
    chosen, _ = choose(data, counts)
    fields = {name: number(len(counts)) for name in ("pixel_values", "pixel_attention_mask")}
    taken = Pictures.of(fields, counts).take(torch.tensor(chosen))
    for found in taken.copy_fields().values():
        assert found.flatten().tolist() == chosen
    assert taken.count_features() == [1] * len(chosen)


def test_entries_that_are_nobodys():
    assert Pictures.of({"pixel_values": number(3)}, [1, 1]) is None


@given(COUNTS, st.integers(1, 9))
def test_tiles_are_told_by_the_tokens_that_stand_for_them(counts, tokens):
    """Where a processor does not say how many there are."""
    tiles = [2 * count + (count > 0) for count in counts]
    fields = {"pixel_values": number(sum(tiles))}
    found = find_pictures(fields, counts, [tokens * count for count in tiles])
    assert found.sizes["pixel_values"] == tiles


def test_nobody_guesses_whose_pictures_they_are():
    """Sampling would read prompts without them."""
    with pytest.raises(TrainingError, match=r"not known; got pixel_values \[3, 1\]"):
        find_pictures({"pixel_values": number(3)}, [1, 1], [0, 0])


SIZES = [(16, 16), (24, 40), (16, 16), (8, 56)]


@pytest.fixture
def processor(policies):
    return policies.find_processor("qwen2_5_vl")


@pytest.fixture
def count_processed(processor, monkeypatch):
    """How many pictures the image processor itself was given."""
    given = []
    own = type(processor.image_processor).__call__

    def call(self, images, *more, **named):
        given.extend(images if isinstance(images, list) else [images])
        return own(self, images, *more, **named)

    monkeypatch.setattr(type(processor.image_processor), "__call__", call)
    return lambda: len(given)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].equal(other[name]), name


def test_equal_pictures_are_processed_once(processor, count_processed, grpo):
    pictures = [grpo.draw_picture(seed % 3, size) for seed, size in enumerate(SIZES)]
    nested = [[pictures[0], pictures[1]], [pictures[2].copy()], [pictures[3], pictures[1].copy()]]
    flat = [picture for row in nested for picture in row]
    plain = processor.image_processor(flat, return_tensors="pt")
    processed = count_processed()
    with process_pictures_once(processor):
        assert_same(plain, processor.image_processor(images=nested, return_tensors="pt"))
        assert count_processed() - processed == 4
        assert_same(plain, processor.image_processor(flat, return_tensors="pt"))
        assert count_processed() - processed == 4


def test_the_whole_processor_gives_the_same(processor, grpo):
    pictures = [[grpo.draw_picture(n, SIZES[n])] for n in (0, 1)]
    text = ["<|image_pad|> one", "two <|image_pad|> or more"]
    given = {"images": pictures, "text": text, "padding": True, "return_tensors": "pt"}
    plain = processor(**given)
    with process_pictures_once(processor):
        assert_same(plain, processor(**given))


def test_pictures_are_told_apart_by_all_that_is_seen(processor):
    """Size, mode and palette, not only bytes; one of them is no Pillow picture."""
    grey = Image.new("L", (16, 16), 7)
    pictures = [grey, Image.new("L", (32, 8), 7), np.zeros((16, 24, 3), np.uint8)]
    for colour in ((255, 0, 0), (0, 0, 255)):
        picture = Image.new("P", (16, 16), 7)
        picture.putpalette(colour * 256)
        pictures.append(picture)
    plain = [processor.image_processor(p, return_tensors="pt") for p in pictures]
    with process_pictures_once(processor):
        for expected, picture in zip(plain, pictures, strict=True):
            assert_same(expected, processor.image_processor(picture, return_tensors="pt"))


def test_the_processor_is_itself_again(processor):
    own = processor.image_processor

    def fail():
        with process_pictures_once(processor):
            assert processor.image_processor is not own
            assert processor.image_processor.merge_size == own.merge_size
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert processor.image_processor is own


def test_a_processor_with_other_outputs_or_of_no_pictures_is_left_alone(policies):
    """One cuts pictures into patches as well, and says more, or something else, about them."""
    own = VideoLlama3ImageProcessor()
    assert hasattr(own, "merge_size")
    processor = SimpleNamespace(image_processor=own)
    with process_pictures_once(processor):
        assert processor.image_processor is own
    tokenizer = policies.find_processor("qwen2")
    with process_pictures_once(tokenizer):
        assert not hasattr(tokenizer, "image_processor")
