"""Pictures of every kind come out upright, RGB and within the limit, or with one reason."""

import io
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_kinds import TURNED, save_kinds
from picture_kinds import save_picture as save
from PIL import Image
from streams import ask, draw

from groupwise.core import DataError, open_picture, pictures, read_picture
from groupwise.inference import pictures as own
from groupwise.inference.pictures import fit_size, measure_example, open_limited

LIMIT = 1024 * 768


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(784, 10**6))
def test_no_size_is_beyond_the_limit(width, height, limit):
    fitted = fit_size((width, height), limit)
    assert fitted[0] * fitted[1] <= limit
    assert min(fitted) >= 1
    if width * height <= limit:
        assert fitted == (width, height)
    if min(fitted) > 50:
        assert fitted[0] / fitted[1] == pytest.approx(width / height, rel=0.05)
    assert fit_size((width, height), None) == (width, height)


def test_pictures_are_those_of_everybody_else_and_larger_ones_scaled_down_look_the_same(tmp_path):
    for kind, picture in save_kinds(draw(tmp_path / "base.png", (300, 200))).items():
        whole = open_picture(picture)
        found = open_limited(picture, LIMIT)
        assert found.mode == "RGB", kind
        assert np.array_equal(np.asarray(found), np.asarray(whole)), kind
        found = open_limited(picture, 10_000)
        assert found.mode == "RGB", kind
        assert 9_000 < found.size[0] * found.size[1] <= 10_000, kind
        expected = whole.resize(found.size, Image.Resampling.LANCZOS)
        difference = np.abs(np.asarray(found, float) - np.asarray(expected, float)).mean()
        assert difference < 4, kind


def test_a_photo_of_60_megapixels_is_decoded_small(tmp_path, monkeypatch):
    picture = save(tmp_path / "huge.jpg", Image.new("RGB", (9000, 6700), (200, 30, 60)))
    sizes = []
    decode = own._decode

    def watch(opened, limit):
        sizes.append(opened.size)
        return decode(opened, limit)

    monkeypatch.setattr(own, "_decode", watch)
    found = open_limited(picture, LIMIT)
    assert sizes == [(2250, 1675)]
    assert found.size[0] * found.size[1] <= LIMIT
    assert found.getpixel((5, 5)) == pytest.approx((200, 30, 60), abs=2)


@pytest.mark.parametrize(("kind", "num_at_once"), [("png", 1), ("jpg", 3), ("progressive", 1)])
def test_what_stays_large_is_decoded_one_at_a_time(tmp_path, monkeypatch, kind, num_at_once):
    monkeypatch.setattr(pictures, "LARGE_PIXELS", 100_000)
    named = {"progressive": True} if kind == "progressive" else {}
    path = tmp_path / ("a.png" if kind == "png" else "a.jpg")
    picture = save(path, Image.new("RGB", (500, 400)), **named)
    decode, at_once, most = own._decode, [], []
    meeting = threading.Barrier(num_at_once)

    def watch(opened, limit):
        at_once.append(1)
        meeting.wait(timeout=30)
        most.append(len(at_once))
        found = decode(opened, limit)
        at_once.pop()
        return found

    monkeypatch.setattr(own, "_decode", watch)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: open_limited(picture, 5_000), range(3)))
    assert max(most) == num_at_once


def test_a_missing_or_changed_picture_is_named(tmp_path):
    picture = save(tmp_path / "a.png", Image.new("RGB", (9, 9)))
    draw(tmp_path / "a.png", (9, 9), 3)
    with pytest.raises(DataError, match=r"a\.png has changed"):
        open_limited(picture, LIMIT)
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match=r"cannot read picture .*a\.png"):
        open_limited(picture, LIMIT)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
def test_a_broken_picture_is_decoded_or_refused_and_never_another_error(tmp_path, kind):
    stream = io.BytesIO()
    base = Image.open(draw(tmp_path / "base.png", (60, 50)))
    named = {} if kind in ("GIF", "BMP") else {"exif": TURNED}
    base.save(stream, format=kind, **named)
    whole, chance = stream.getvalue(), random.Random(kind)
    num_refused = 0
    for number in range(300):
        content = bytearray(whole[: chance.randrange(len(whole))] if number % 3 == 0 else whole)
        for _ in range(chance.randrange(1, 8) if content else 0):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path = tmp_path / f"{number}.bin"
        path.write_bytes(content)
        try:
            found = open_limited(read_picture(path), 2_000)
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017
            num_refused += 1
        else:
            assert found.mode == "RGB"
            assert found.size[0] * found.size[1] <= 2_000
        measure_example(ask("a", path), 2_000)
    assert num_refused > 50


def test_examples_are_measured_by_text_and_pixels(tmp_path):
    small, large = draw(tmp_path / "s.png", (100, 80)), draw(tmp_path / "l.png", (2000, 1000))
    (tmp_path / "torn.png").write_bytes(b"\x89PNG")
    assert measure_example(ask("a" * 10), LIMIT) < measure_example(ask("a" * 20), LIMIT)
    assert measure_example(ask("a", small), LIMIT) < measure_example(ask("a", large), LIMIT)
    assert measure_example(ask("a", large), LIMIT) == measure_example(ask("a", large), LIMIT)
    assert measure_example(ask("a", large), LIMIT) < measure_example(ask("a", large), None)
    assert measure_example(ask("a", small, small), LIMIT) > measure_example(ask("a", small), LIMIT)
    assert measure_example(ask("a", tmp_path / "torn.png"), LIMIT) == 0.5
