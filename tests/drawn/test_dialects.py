"""The world of dialects: its words, its scenes, and items that no two splits share."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from groupwise.core import DataError
from groupwise_drawn.dialects import (
    COLORS,
    DIALECTS,
    QUERY_SPLITS,
    WORDS,
    draw_dictionary,
    draw_scene,
    read_dialects,
    write_dialects,
)
from groupwise_drawn.dialects.scenes import plan_scene

SIZES = {"train": 60, "anchors": 8, "validation": 8, "test": 8}


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dialects")
    return read_dialects(write_dialects(folder, seed=3, sizes=SIZES))


@given(st.integers(0, 2**31), st.floats(0, 1))
def test_dialects_have_different_words_for_different_colours(seed, share):
    drawn = draw_dictionary(seed=seed, revised_share=share)
    assert drawn.words.keys() == drawn.former.keys()
    for dialect in DIALECTS:
        own = [drawn.words[dialect, color] for color in COLORS]
        assert len(set(own)) == len(COLORS)
        assert set(own) <= set(WORDS)
    assert drawn == draw_dictionary(seed=seed, revised_share=share)


def test_words_are_drawn_anew_by_seed_and_all_or_none_may_be_revised():
    kept, revised = (draw_dictionary(seed=0, revised_share=share) for share in (0.0, 1.0))
    assert kept.words == kept.former
    assert all(revised.words[cell] != word for cell, word in revised.former.items())
    assert draw_dictionary(seed=0).words != draw_dictionary(seed=1).words


def test_only_a_stamped_item_has_the_word_that_counts_now(items):
    drawn = draw_dictionary(seed=3)
    for item in items:
        known = drawn.words if item.scene.stamped else drawn.former
        assert item.answers == (known[item.dialect, item.scene.color],) * 10
        assert item.question.endswith(item.dialect)
    assert all(item.scene.stamped for item in items if item.split in QUERY_SPLITS)
    stamped = [item.scene.stamped for item in items if item.split == "train"]
    assert any(stamped)
    assert not all(stamped)


def test_no_item_is_shared_and_the_same_seed_gives_the_same_items(items, tmp_path):
    assert len({(item.picture.digest, item.question) for item in items}) == sum(SIZES.values())
    again = read_dialects(write_dialects(tmp_path / "a", seed=3, sizes=SIZES))
    other = read_dialects(write_dialects(tmp_path / "b", seed=4, sizes=SIZES))
    assert again == items
    assert {item.picture for item in other}.isdisjoint(item.picture for item in items)


def test_the_colour_that_is_asked_for_is_seen(items):
    for item in items:
        with Image.open(item.picture.path) as opened:
            assert opened.size == (128, 128)
            shown = list(opened.convert("RGB").get_flattened_data())
        asked = COLORS[item.scene.color]
        near = sum(max(abs(a - b) for a, b in zip(x, asked, strict=True)) <= 10 for x in shown)
        assert near > 0.04 * 128 * 128


def test_a_stamp_changes_nothing_but_its_corner():
    plain = plan_scene(random.Random(5), stamped=False)
    stamped = plan_scene(random.Random(5), stamped=True)
    boxes = [
        draw_scene(scene, rng=random.Random(8)).crop((0, 24, 128, 128)).tobytes()
        for scene in (plain, stamped)
    ]
    assert boxes[0] == boxes[1]
    assert stamped.caption == f"{plain.caption} stamped"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"sizes": {}}, "a world needs items"),
        ({"sizes": {"train": 1, "held": 1}}, "unknown split; got 'held'"),
        ({"sizes": {"train": 1}, "former_share": 1.5}, "former_share is out of range"),
        ({"sizes": {"train": 1}, "revised_share": -0.5}, "revised_share is out of range"),
    ],
)
def test_what_is_out_of_range_is_refused(named, message, tmp_path):
    with pytest.raises(DataError, match=message):
        write_dialects(tmp_path, seed=0, **named)


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "items.jsonl").write_text('{"id": "x"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="is no file of items: 'picture'"):
        read_dialects(tmp_path / "items.jsonl")
