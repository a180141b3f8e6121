from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from scenes import copy_scene, draw_scene
from scipy.sparse.csgraph import connected_components

from groupwise.core import DataError
from groupwise.data import near
from groupwise.data.near import (
    Gallery,
    Sight,
    choose_nearest,
    drop_near,
    find_near_duplicates,
    join_by_files,
    join_near_duplicates,
)
from groupwise.data.splits import find_near_texts

"""Near texts: everything that is near is found, whatever runs find the candidates."""


words = st.lists(st.sampled_from(["a", "b", "c", "三", "四", "1"]), min_size=1, max_size=12).map(
    " ".join
)


texts = st.lists(words, min_size=1, max_size=6)


def cut(text: str) -> set[tuple[str, ...]]:
    parts = text.split()
    return {tuple(parts[n : n + 3]) for n in range(max(1, len(parts) - 2))}


def share(one: str, other: str) -> float:
    return len(cut(one) & cut(other)) / len(cut(one) | cut(other))


@given(texts, texts, st.sampled_from([0.5, 0.8, 1.0]))
def test_the_index_finds_what_comparing_all_with_all_finds(
    asked: list[str], others: list[str], least: float
):
    wanted = [
        (index, next(n for n, other in enumerate(others) if share(text, other) >= least))
        for index, text in enumerate(asked)
        if any(share(text, other) >= least for other in others)
    ]
    assert [(i, j) for i, j, _ in find_near_texts(asked, others, least=least)] == wanted


def test_case_width_and_white_space_do_not_count():
    assert find_near_texts(["Ｗhat  IS it?\n"], ["what is it?"]) == [(0, 0, 1.0)]


def test_one_other_number_in_a_long_text_is_near_and_another_text_is_not():
    text = "A man has 12 apples and gives half of them to his two sisters, who share them."
    story = f"{text} Then he buys a bag with as many apples as he had in the morning before."
    others = [story.replace("12", "16"), "小明有三个苹果，又买了四个，一共有几个？"]
    assert [(i, j) for i, j, _ in find_near_texts([story], others)] == [(0, 0)]
    assert find_near_texts([story], others[1:]) == []


Draw = Callable[..., Path]


def recolour(picture: Image.Image) -> Image.Image:
    for enhancer, factor in (
        (ImageEnhance.Brightness, 0.8),
        (ImageEnhance.Contrast, 1.2),
        (ImageEnhance.Color, 0.5),
    ):
        picture = enhancer(picture).enhance(factor)
    return picture


def crop(picture: Image.Image) -> Image.Image:
    """Take 5 % of the width from the left and of the height from the bottom."""
    width, height = picture.size
    return picture.crop((width // 20, 0, width, height - height // 20))


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "smaller": lambda picture: picture.resize((160, 120)),
    "recoloured": recolour,
    "cropped": crop,
    "cropped and recoloured": lambda picture: recolour(crop(picture)),
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[Sight]:
    folder = tmp_path_factory.mktemp("scenes")
    return [
        Sight(draw_scene(folder / f"{number}.png", number), f"c{number}") for number in range(6)
    ]


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_is_found_and_nothing_else(tmp_path: Path, scenes: list[Sight], kind: str) -> None:
    with Image.open(scenes[4].path) as picture:
        COPIES[kind](picture).save(tmp_path / "copy.jpg", quality=80)
    found = find_near_duplicates([Sight(tmp_path / "copy.jpg", "copy")], scenes)
    assert [(one.index, one.other, one.is_mirrored) for one in found] == [(0, 4, False)]
    assert find_near_duplicates(scenes, scenes) == []


def test_mirror_images_count_only_where_they_are_asked_for(
    tmp_path: Path, scenes: list[Sight]
) -> None:
    with Image.open(scenes[2].path) as picture:
        ImageOps.mirror(crop(picture)).save(tmp_path / "copy.png")
    copy = [Sight(tmp_path / "copy.png", "copy")]
    assert find_near_duplicates(copy, scenes) == []
    [found] = find_near_duplicates(copy, scenes, mirrored=True)
    assert (found.other, found.is_mirrored) == (2, True)


def test_pictures_of_one_cluster_may_look_alike(tmp_path: Path, scenes: list[Sight]) -> None:
    with Image.open(scenes[0].path) as picture:
        picture.save(tmp_path / "next.jpg")
    frames = [scenes[0], Sight(tmp_path / "next.jpg", scenes[0].cluster)]
    assert find_near_duplicates(frames, frames) == []
    apart = [scenes[0], Sight(tmp_path / "next.jpg", "another")]
    assert [one.other for one in find_near_duplicates(apart, apart)] == [1, 0]


def test_plain_pictures_are_copies_only_where_all_of_them_is_alike(tmp_path: Path) -> None:
    ramp = Image.linear_gradient("L").resize((320, 240))
    ramp.save(tmp_path / "ramp.png")
    ramp.resize((200, 150)).save(tmp_path / "small.jpg")
    ramp.rotate(90).resize((320, 240)).save(tmp_path / "across.png")
    names = ("ramp.png", "small.jpg", "across.png")
    sights = [Sight(tmp_path / name, name) for name in names]
    found = find_near_duplicates(sights, sights)
    assert [(one.index, one.other) for one in found] == [(0, 1), (1, 0)]


def test_exif_rotation_is_applied(tmp_path: Path, scenes: list[Sight]) -> None:
    exif = Image.Exif()
    exif[274] = 3
    with Image.open(scenes[1].path) as picture:
        picture.rotate(180).save(tmp_path / "turned.png", exif=exif)
    [found] = find_near_duplicates([Sight(tmp_path / "turned.png", "copy")], scenes)
    assert found.other == 1
    assert found.agreement > 0.99


def test_a_gallery_that_grows_finds_what_one_made_at_once_does(
    tmp_path: Path, scenes: list[Sight]
) -> None:
    copies = [Sight(tmp_path / f"{place}.jpg", f"copy {place}") for place in (4, 0)]
    for sight, place in zip(copies, (4, 0), strict=True):
        with Image.open(scenes[place].path) as picture:
            recolour(crop(picture)).save(sight.path)
    gallery = Gallery()
    assert gallery.find(copies) == []
    gallery.add(scenes[:3])
    gallery.add([])
    assert [(one.index, one.other) for one in gallery.find(copies)] == [(1, 0)]
    gallery.add(scenes[3:])
    assert gallery.find(copies) == find_near_duplicates(copies, scenes)


@given(st.lists(st.sampled_from([-1.0, 0.69, 0.7, 0.8, 0.9, 1.0]), max_size=12))
def test_candidates_are_the_first_of_all_places_by_likeness(likeness: list[float]) -> None:
    values = np.array(likeness, np.float32)
    ranked = sorted(range(len(values)), key=lambda place: -values[place])
    expected = [place for place in ranked[:4] if values[place] >= np.float32(0.7)]
    assert choose_nearest(values) == expected


def test_an_unreadable_picture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no")
    with pytest.raises(DataError, match="cannot decode the picture"):
        find_near_duplicates([Sight(tmp_path / "a.png", "a")], [Sight(tmp_path / "a.png", "b")])


CONTENTS = st.sampled_from([b"a", b"b", b"cc", b"dd", b"ee", b"longer"])


CLUSTERS = st.lists(st.lists(CONTENTS, max_size=3), max_size=9)


def write_clusters(folder: Path, clusters: list[list[bytes]]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for number, contents in enumerate(clusters):
        files[f"g{number}"] = []
        for place, content in enumerate(contents):
            path = folder / f"{number}-{place}.jpg"
            path.write_bytes(content)
            files[f"g{number}"].append(path)
    return files


@given(clusters=CLUSTERS)
def test_sets_are_the_connected_components(
    tmp_path_factory: pytest.TempPathFactory, clusters: list[list[bytes]]
) -> None:
    joined = join_by_files(write_clusters(tmp_path_factory.mktemp("files"), clusters))
    shared = np.array([[bool({*one} & {*two}) for two in clusters] for one in clusters], ndmin=2)
    parts = connected_components(shared)[1].tolist() if clusters else []
    expected = {f"g{n}": f"g{parts.index(part)}" for n, part in enumerate(parts)}
    assert joined == expected


def test_a_chain_is_one_set_named_after_its_first_cluster(tmp_path: Path) -> None:
    clusters = [[b"x"], [b"a"], [b"c", b"b"], [b"a", b"b"], []]
    joined = join_by_files(write_clusters(tmp_path, clusters))
    assert joined == {"g0": "g0", "g1": "g1", "g2": "g1", "g3": "g1", "g4": "g4"}


def test_a_file_that_is_gone_joins_nothing(tmp_path: Path) -> None:
    files = write_clusters(tmp_path, [[b"a"], [b"a"]])
    files["g0"][0].unlink()
    assert join_by_files(files) == {"g0": "g0", "g1": "g1"}


def draw_sessions(folder: Path, num_sessions: int) -> list[Sight]:
    """Return two screens of each session, all different."""
    return [
        Sight(draw_scene(folder / f"{n}-{k}.png", 2 * n + k), f"s{n}")
        for n in range(num_sessions)
        for k in range(2)
    ]


def test_sessions_with_near_duplicates_are_joined_also_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "MAX_JOINED_SHARE", 0.5)
    sights = draw_sessions(tmp_path, 10)
    chain = [
        Sight(copy_scene(sights[2].path, tmp_path / "a.jpg"), "s7"),
        Sight(copy_scene(sights[15].path, tmp_path / "b.jpg"), "s9"),
    ]
    joined = join_near_duplicates([*sights, *chain])
    assert {name for name, head in joined.items() if head == "s1"} == {"s1", "s7", "s9"}
    others = {name: head for name, head in joined.items() if head != "s1"}
    assert all(name == head for name, head in others.items())


def test_joining_that_runs_through_the_data_is_refused(tmp_path: Path) -> None:
    sights = draw_sessions(tmp_path, 10)
    copy = Sight(copy_scene(sights[0].path, tmp_path / "copy.jpg"), "s5")
    with pytest.raises(DataError, match=r"5 of 21 pictures in one cluster.*drop or warn"):
        join_near_duplicates([*sights, copy])


def test_copies_are_dropped_from_what_is_kept_less(tmp_path: Path) -> None:
    train, test = draw_sessions(tmp_path, 4)[:4], draw_sessions(tmp_path, 4)[4:]
    copy = Sight(copy_scene(test[1].path, tmp_path / "copy.jpg"), "s0")
    splits = {"train": [*train, copy], "test": test}
    dropped: list[tuple[Sight, str]] = []
    kept = drop_near(
        splits, list_paths=lambda sight: [sight.path], report=lambda *one: dropped.append(one)
    )
    assert kept == {"train": train, "test": test}
    assert dropped == [(copy, "train")]
