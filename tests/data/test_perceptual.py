from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from groupwise.core import DataError
from groupwise.data import find_near_duplicates, hash_picture

Draw = Callable[..., Path]

hash_lists = st.lists(st.one_of(st.integers(0, 31), st.integers(0, 2**64 - 1)), max_size=12)


def test_a_ramp_has_the_hash_that_its_definition_gives(tmp_path: Path) -> None:
    ramp = np.repeat(np.arange(90, dtype=np.uint8)[None, :], 80, axis=0)
    Image.fromarray(ramp).save(tmp_path / "up.png")
    Image.fromarray(ramp[:, ::-1].copy()).save(tmp_path / "down.png")
    half = ramp.copy()
    half[:40] = half[:40, ::-1]
    Image.fromarray(half).save(tmp_path / "half.png")
    assert hash_picture(tmp_path / "up.png") == 0
    assert hash_picture(tmp_path / "down.png") == 2**64 - 1
    assert hash_picture(tmp_path / "half.png") == (2**32 - 1) << 32


def test_a_copy_in_another_format_and_size_is_near(tmp_path: Path, draw_picture: Draw) -> None:
    first = hash_picture(draw_picture(tmp_path / "a.png"))
    copy = hash_picture(draw_picture(tmp_path / "a.jpg", quality=70))
    with Image.open(tmp_path / "a.png") as image:
        image.resize((128, 96)).save(tmp_path / "large.png")
    other = hash_picture(draw_picture(tmp_path / "b.png", number=5))
    assert (first ^ copy).bit_count() <= 2
    assert (first ^ hash_picture(tmp_path / "large.png")).bit_count() <= 2
    assert (first ^ other).bit_count() > 8


def test_exif_rotation_is_applied(tmp_path: Path, draw_picture: Draw) -> None:
    exif = Image.Exif()
    exif[274] = 3
    with Image.open(draw_picture(tmp_path / "a.png")) as image:
        image.rotate(180).save(tmp_path / "turned.png", exif=exif)
        image.rotate(180).save(tmp_path / "plain.png")
    assert hash_picture(tmp_path / "turned.png") == hash_picture(tmp_path / "a.png")
    assert hash_picture(tmp_path / "plain.png") != hash_picture(tmp_path / "a.png")


def test_an_unreadable_picture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no")
    with pytest.raises(DataError, match="cannot decode the picture"):
        hash_picture(tmp_path / "a.png")


@given(hash_lists, hash_lists, st.integers(0, 5))
def test_the_nearest_within_the_distance_is_found(
    hashes: list[int], others: list[int], max_distance: int
) -> None:
    found = find_near_duplicates(hashes, others, max_distance=max_distance)
    expected = []
    for index, one in enumerate(hashes):
        distances = [(one ^ other).bit_count() for other in others]
        if distances and min(distances) <= max_distance:
            nearest = distances.index(min(distances))
            expected.append((index, nearest, distances[nearest]))
    assert [(near.index, near.other, near.distance) for near in found] == expected


def test_many_hashes_are_compared_block_by_block() -> None:
    hashes = [number << 20 for number in range(600)]
    found = find_near_duplicates(hashes, hashes, max_distance=0)
    assert [(near.index, near.other) for near in found] == [(n, n) for n in range(600)]
