"""Copies are found whatever was done to them, and what only resembles is not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from scenes import draw_scene

from groupwise.core import DataError
from groupwise.data import Sight, find_near_duplicates
from groupwise.data.perceptual import Gallery, choose_nearest

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
