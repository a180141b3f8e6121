import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from groupwise.training.fast.round import (
    Groups,
    find_dead_rows,
    number_prompts,
    shuffle_groups,
    split_batch,
    split_groups,
)

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
    assert len(groups) == len(set(numbers.tolist()))
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
