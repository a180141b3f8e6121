"""Drawn scenes of two things: captions, boxes, pairs, pictures, and what no two splits share."""

import json
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from PIL import Image, ImageChops

from groupwise.core import DataError, open_picture
from groupwise_drawn.relations import (
    INVERSES,
    KINDS,
    LANGUAGES,
    RELATIONS,
    SPLITS,
    STYLES,
    Scene,
    Split,
    draw_depth,
    draw_picture,
    list_kind_pairs,
    name_thing,
    paint_things,
    plan_pairs,
    read_relations,
    sets,
    write_claim,
    write_relations,
)
from groupwise_drawn.relations.shapes import draw_silhouette

NUM_PAIRS: dict[Split, int] = {"train": 12, "validation": 6, "test": 6}
OPPOSITES = {"left": "right", "above": "below", "front": "behind"}


@pytest.fixture(scope="module")
def pairs():
    return list(plan_pairs(504, seed=3, split="train"))


@pytest.fixture(scope="module", params=STYLES)
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return write_relations(folder, seed=5, num_pairs=NUM_PAIRS, style=request.param, side=96)


def read_truth(scene: Scene) -> bool:
    """Return whether the words of the caption hold for boxes that lie apart, or for the order."""
    words = scene.write_caption("en").removesuffix(".").split()
    first = next(thing for thing in scene.layers if thing.kind == words[words.index("is") - 1])
    second = next(thing for thing in scene.layers if thing.kind == words[-1])
    a, b = first.box, second.box
    apart = {
        "left": (a[2] < b[0], b[2] < a[0]),
        "above": (a[3] < b[1], b[3] < a[1]),
        "front": (first == scene.layers[1], first == scene.layers[0]),
    }
    for word, (holds, fails) in apart.items():
        if word in words or OPPOSITES[word] in words:
            assert holds != fails
            return holds == (word in words)
    raise AssertionError(words)


def test_the_caption_is_as_true_as_boxes_and_order_say_for_a_thousand_scenes(pairs):
    for pair in pairs:
        for scene in pair:
            assert scene.label == read_truth(scene)


def test_partners_have_one_caption_and_the_other_truth_and_differ_in_one_exchange(pairs):
    for one, two in pairs:
        assert one.label != two.label
        for language in LANGUAGES:
            assert one.write_caption(language) == two.write_caption(language)
        assert one.exchange() == two
        if one.relation in ("in front of", "behind"):
            assert one.layers == two.layers[::-1]
        else:
            assert one.subject.middle == two.other.middle
            assert one.other.middle == two.subject.middle
            assert one.subject.size == two.subject.size
            assert one.is_subject_in_front == two.is_subject_in_front


def test_truth_is_balanced_in_every_relation(pairs):
    counts = Counter((scene.relation, scene.label) for pair in pairs for scene in pair)
    assert counts == dict.fromkeys(((r, label) for r in RELATIONS for label in (True, False)), 84)
    firsts = Counter(one.label for one, _ in pairs)
    assert min(firsts.values()) > 200


def test_captions_in_english_and_chinese():
    ball, chair = name_thing("ball", "red", "en"), name_thing("chair", None, "en")
    assert write_claim(ball, "left of", chair, "en") == "The red ball is left of the chair."
    ball, chair = name_thing("ball", "red", "zh"), name_thing("chair", None, "zh")
    assert write_claim(ball, "left of", chair, "zh") == "红色球在椅子的左边。"


@pytest.mark.parametrize("language", LANGUAGES)
def test_captions_name_both_things_and_each_relation_in_its_own_words(pairs, language):
    ends = set()
    for one, _ in pairs:
        caption = one.write_caption(language)
        subject, other = one.subject.name(language), one.other.name(language)
        assert caption.count(subject) == caption.count(other) == 1
        ends.add((one.relation, caption.replace(subject, "A").replace(other, "B")))
    assert len(ends) == len({words for _, words in ends}) == len(RELATIONS)
    for thing in ("subject", "other"):
        assert {getattr(one, thing).is_named_by_color for one, _ in pairs} == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_a_silhouette_touches_all_sides_whatever_its_size(kind):
    for width, height in permutations(range(12, 48, 5), 2):
        mask = draw_silhouette(kind, width, height).mask
        assert mask.getbbox() == (0, 0, width, height)
        assert set(np.unique(np.asarray(mask))) <= {0, 255}


def find_change(before: Image.Image, after: Image.Image) -> tuple[int, int, int, int]:
    changed = ImageChops.difference(before, after).getbbox()
    assert changed is not None
    return changed


@pytest.mark.parametrize(("style", "number"), [("flat", 504), ("textured", 30)])
def test_boxes_lie_in_the_picture_and_bound_what_is_drawn_of_a_thing_alone(pairs, style, number):
    for scene in (scene for pair in pairs[:number] for scene in pair):
        wall = paint_things([], side=scene.side, seed=scene.seed, style=style)
        for thing in scene.layers:
            assert min(thing.box) >= 0
            assert max(thing.box) <= scene.side
            alone = paint_things([thing], side=scene.side, seed=scene.seed, style=style)
            assert find_change(wall, alone) == thing.box


@pytest.mark.parametrize("style", STYLES)
def test_the_thing_in_front_is_seen_whole_and_the_one_behind_in_part(pairs, style):
    for scene, _ in [pair for pair in pairs if pair[0].relation == "behind"][:20]:
        behind, front = scene.layers
        picture = draw_picture(scene, style=style)
        mask = Image.new("L", picture.size)
        mask.paste(draw_silhouette(front.kind, *front.size).mask, front.box)
        alone = paint_things([front], side=scene.side, seed=scene.seed, style=style)
        difference = ImageChops.difference(picture, alone)
        assert difference.getbbox(), "nothing of the thing behind is seen"
        assert Image.composite(difference, Image.new("RGB", picture.size), mask).getbbox() is None
        whole = draw_silhouette(behind.kind, *behind.size).mask.histogram()[255]
        values = np.asarray(draw_depth(scene))
        assert 0.4 * whole - 1 <= (values == 128).sum() < whole
        assert (values == 255).sum() == mask.histogram()[255]
        assert set(np.unique(values)) == {0, 128, 255}


def test_the_same_wall_and_textures_in_partners_and_the_same_scenes_in_both_styles(tmp_path):
    one, two = next(plan_pairs(1, seed=9, split="test"))
    for style in STYLES:
        changed = find_change(draw_picture(one, style=style), draw_picture(two, style=style))
        boxes = np.array([thing.box for scene in (one, two) for thing in scene.layers])
        assert (np.array(changed[:2]) >= boxes[:, :2].min(0)).all()
        assert (np.array(changed[2:]) <= boxes[:, 2:].max(0)).all()
    items = [
        read_relations(
            write_relations(tmp_path / style, seed=1, num_pairs={"test": 2}, style=style)
        )
        for style in STYLES
    ]
    assert [item.scene for item in items[0]] == [item.scene for item in items[1]]
    assert [item.depth.digest for item in items[0]] == [item.depth.digest for item in items[1]]
    assert {item.picture for item in items[0]}.isdisjoint(item.picture for item in items[1])


def test_kinds_that_meet_in_one_split_meet_in_no_other_and_all_are_as_frequent():
    met = {split: {frozenset(pair) for pair in list_kind_pairs(split)} for split in SPLITS}
    assert [len(met[split]) for split in SPLITS] == [30, 5, 10]
    for one, two in combinations(SPLITS, 2):
        assert met[one].isdisjoint(met[two])
    for pairs in met.values():
        assert len(set(Counter(kind for pair in pairs for kind in pair).values())) == 1


def test_no_split_holds_a_picture_or_caption_of_another(written):
    items = read_relations(written)
    assert Counter(item.split for item in items) == {k: 2 * n for k, n in NUM_PAIRS.items()}
    assert len({item.picture.digest for item in items}) == len(items)
    for one, two in combinations(SPLITS, 2):
        captions = [
            {item.scene.write_caption("en") for item in items if item.split == split}
            for split in (one, two)
        ]
        assert captions[0].isdisjoint(captions[1])


def test_items_are_read_as_written_with_their_partners(written):
    items = {item.id: item for item in read_relations(written)}
    rows = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        item, partner = items[row["id"]], items[row["partner"]]
        assert (partner.partner, partner.pair) == (item.id, item.pair)
        assert item.scene.exchange() == partner.scene
        assert row["label"] == item.scene.label != partner.scene.label
        assert row["captions"] == {k: item.scene.write_caption(k) for k in LANGUAGES}
        drawn = draw_picture(item.scene, style=item.style)
        assert open_picture(item.picture).tobytes() == drawn.tobytes()
        with Image.open(item.depth.path) as opened:
            assert opened.tobytes() == draw_depth(item.scene).tobytes()


def test_the_seed_decides_and_fewer_pairs_are_the_first_of_more(written, tmp_path):
    style = written.parent.name.rstrip("0123456789")
    again = write_relations(tmp_path, seed=5, num_pairs=NUM_PAIRS, style=style, side=96)
    assert again.read_bytes() == written.read_bytes()
    assert read_relations(again) == read_relations(written)
    first = list(plan_pairs(8, seed=5, split="test"))
    assert list(plan_pairs(4, seed=5, split="test")) == first[:4]
    assert list(plan_pairs(4, seed=6, split="test")) != first[:4]


def test_inverse_relations_of_exchanged_things_say_the_same(pairs):
    for pair in pairs[:60]:
        for scene in pair:
            turned = Scene(
                INVERSES[scene.relation],
                scene.other,
                scene.subject,
                not scene.is_subject_in_front,
                scene.side,
                scene.seed,
            )
            assert turned.label == scene.label


def test_more_pairs_than_there_are_is_an_error(monkeypatch):
    pair = next(plan_pairs(1, seed=0, split="test"))
    monkeypatch.setattr(sets, "plan_pair", lambda *_, **__: pair)
    with pytest.raises(DataError, match="there are no 2 different pairs for test"):
        list(plan_pairs(2, seed=0, split="test"))
