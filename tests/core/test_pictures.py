import contextlib
import io
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from damaged_pictures import damage_picture
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import EpsImagePlugin, Image

from groupwise.core import DataError, open_picture, pictures, read_picture, store_picture


def test_pictures_are_turned_upright(tmp_path):
    picture = Image.new("RGB", (30, 20), "red")
    picture.putpixel((0, 0), (0, 0, 255))
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the scene is at the right of the file
    picture.save(tmp_path / "turned.png", exif=exif)
    opened = open_picture(tmp_path / "turned.png")
    assert opened.size == (20, 30)
    assert opened.getpixel((19, 0)) == (0, 0, 255)


@given(
    size=st.tuples(st.integers(1, 400), st.integers(1, 400)) | st.just((1, 9000)),
    max_pixels=st.integers(784, 40_000),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_stored_pictures_keep_within_max_pixels(tmp_path, size, max_pixels):
    source = tmp_path / "source.png"
    Image.new("RGB", size, "green").save(source)
    stored = store_picture(read_picture(source), tmp_path / "stored.png", max_pixels=max_pixels)
    opened = open_picture(stored)
    assert opened.width * opened.height <= max_pixels
    if size[0] * size[1] <= max_pixels:
        assert opened.size == size
    assert stored == read_picture(stored.path)


def draw_ramp(*, bits):
    return np.linspace(0, 2**bits - 1, 64).astype(np.uint16).reshape(8, 8)


@pytest.mark.parametrize("name", ["deep.png", "deep.tiff"])
def test_sixteen_bits_become_their_high_bytes(tmp_path, name):
    ramp = draw_ramp(bits=16)
    Image.fromarray(ramp).save(tmp_path / name)
    opened = np.asarray(open_picture(tmp_path / name))
    assert (opened == (ramp >> 8)[..., None]).all()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.int32(70_000), r"odd\.tiff .*16 bits"),
        (np.int32(-1), r"odd\.tiff .*16 bits"),
        (np.float32(0.5), "no range"),
    ],
)
def test_numbers_beyond_sixteen_bits_and_floats_are_refused(tmp_path, value, words):
    Image.fromarray(np.full((4, 4), value)).save(tmp_path / "odd.tiff")
    with pytest.raises(DataError, match=words):
        open_picture(tmp_path / "odd.tiff")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_what_is_transparent_shows_white(tmp_path, mode):
    save_half_transparent(tmp_path / "glass.png", mode)
    opened = open_picture(tmp_path / "glass.png")
    assert opened.getpixel((0, 0)) == (255, 255, 255)
    assert max(opened.getpixel((7, 7))) < 60


def save_half_transparent(path, mode):
    """Black on nothing: the left half is transparent, whatever the mode says so with."""
    black = Image.new("RGBA", (8, 8), (0, 0, 0, 255))
    black.paste((9, 9, 9, 0), (0, 0, 4, 8))
    if mode in ("RGB", "L"):
        key = (9, 9, 9) if mode == "RGB" else 9
        black.convert("RGB").convert(mode).save(path, transparency=key)
    else:
        black.convert(mode).save(path)


def test_half_transparent_is_mixed_with_white(tmp_path):
    Image.new("RGBA", (2, 2), (0, 0, 0, 128)).save(tmp_path / "veil.png")
    assert open_picture(tmp_path / "veil.png").getpixel((0, 0)) == (127, 127, 127)


def test_what_is_transparent_in_sixteen_bits_shows_white(tmp_path):
    values = np.array([[0x1234, 0x1235]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png", transparency=0x1234)
    opened = open_picture(tmp_path / "deep.png")
    assert [opened.getpixel((x, 0))[0] for x in (0, 1)] == [255, 0x12]


@pytest.mark.parametrize("name", ["a.eps", "a.png", "照片.jpg"])
def test_no_program_is_started_for_a_picture(tmp_path, monkeypatch, name):
    Image.new("RGB", (8, 6), "red").save(tmp_path / name, format="EPS")
    handed: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given: handed.append(given))
    with pytest.raises(DataError, match="no whole JPEG"):
        open_picture(tmp_path / name)
    assert handed == []


def test_jpegs_of_phones_that_hold_a_second_picture_are_opened(tmp_path):
    first, second = (Image.new("RGB", (16, 16), colour) for colour in ("red", "blue"))
    first.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[second])
    red, _, blue = open_picture(tmp_path / "a.jpg").getpixel((3, 3))
    assert red > 200 > 50 > blue


def test_of_moving_pictures_the_first_frame_is_opened(tmp_path):
    first, second = (Image.new("RGB", (8, 6), colour) for colour in ("red", "blue"))
    first.save(tmp_path / "a.gif", save_all=True, append_images=[second])
    assert open_picture(tmp_path / "a.gif").getpixel((3, 3)) == (255, 0, 0)


@pytest.mark.filterwarnings("ignore::UserWarning")
# 17127: of its EXIF data Pillow raises a struct.error.
@pytest.mark.parametrize("seeds", [range(200), [17127]], ids=["many", "found"])
def test_damaged_pictures_are_opened_or_data_errors(tmp_path, seeds):
    refused: list[str] = []
    for seed in seeds:
        (tmp_path / "damaged").write_bytes(damage_picture(seed))
        try:
            assert open_picture(tmp_path / "damaged").mode == "RGB"
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > len(seeds) / 2
    assert all("damaged" in sentence for sentence in refused)


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**64), changes=st.integers(1, 40))
def test_however_a_picture_is_damaged_it_is_opened_or_a_data_error(tmp_path, seed, changes):
    (tmp_path / "damaged").write_bytes(damage_picture(seed, num_changes=changes))
    with contextlib.suppress(DataError):
        opened = open_picture(tmp_path / "damaged")
        assert (opened.mode, len(opened.tobytes())) == ("RGB", 3 * opened.width * opened.height)


def test_of_large_pictures_one_at_a_time_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "LARGE_PIXELS", 99)
    Image.new("RGB", (10, 10)).save(tmp_path / "large.png")
    Image.new("RGB", (9, 11)).save(tmp_path / "small.png")
    done: list[str] = []

    def decode(name: str) -> None:
        open_picture(tmp_path / name)
        done.append(name)

    with pictures.wait_to_decode(100):
        threads = [threading.Thread(target=decode, args=[n]) for n in ("large.png", "small.png")]
        for thread in threads:
            thread.start()
        threads[1].join(timeout=30)
        assert done == ["small.png"]
    threads[0].join(timeout=30)
    assert done == ["small.png", "large.png"]


EMPTY_PNG_CHUNK = bytes(4) + b"abCd" + struct.pack(">I", zlib.crc32(b"abCd"))


def draw(form: str, **given: object) -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((48, 32), 60).convert("P" if form == "GIF" else "RGB").save(
        stream, form, **given
    )
    return stream.getvalue()


def put_in(content: bytes, place: int, pieces: bytes) -> bytes:
    return content[:place] + pieces + content[place:]


def write_tiles(number: int, *, is_big: bool = False) -> bytes:
    """Return a TIFF, or BigTIFF, of grey points, each a tile."""
    first, count, tag, offset = b"II*\0\x08\0\0\0", "<H", "<HHII", "<I"
    if is_big:
        first, count, tag, offset = b"II+\0\x08\0\0\0\x10" + bytes(7), "<Q", "<HHQQ", "<Q"
    kind = 16 if is_big else 4
    values = {256: number, 257: 1, 258: 8, 259: 1, 262: 1, 277: 1, 322: 1, 323: 1}
    end = len(first) + struct.calcsize(count) + 9 * struct.calcsize(tag) + 8
    tags = [struct.pack(tag, name, kind, 1, value) for name, value in values.items()]
    tags.append(struct.pack(tag, 324, kind, number, end))
    table = struct.pack(count, len(tags)) + b"".join(tags) + bytes(8)
    return first + table + struct.pack(offset, 8) * number


def repeat_scan(times: int) -> bytes:
    head, mark, scan = draw("JPEG", progressive=True).rpartition(b"\xff\xda")
    return head + mark + scan[:-2] + (mark + scan[:-2]) * times + scan[-2:]


IN_PIECES: dict[str, Callable[[int], bytes]] = {
    "passes of a JPEG": lambda number: repeat_scan(number // 128),
    "segments of a JPEG": lambda number: put_in(draw("JPEG"), 2, b"\xff\xe5\0\2" * number),
    "chunks of a PNG": lambda number: put_in(draw("PNG"), 33, EMPTY_PNG_CHUNK * number),
    "notes of a GIF": lambda number: put_in(
        draw("GIF"), 13 + 768, b"\x21\xfe" + b"\1a" * number + b"\0"
    ),
    "tiles of a TIFF": write_tiles,
    "tiles of a BigTIFF": lambda number: write_tiles(number, is_big=True),
}


@pytest.mark.parametrize("make", IN_PIECES.values(), ids=IN_PIECES)
def test_a_file_in_too_many_pieces_is_refused(tmp_path: Path, make: Callable[[int], bytes]) -> None:
    (tmp_path / "some").write_bytes(make(5_000))
    (tmp_path / "many").write_bytes(make(20_000))
    assert open_picture(tmp_path / "some").mode == "RGB"
    with pytest.raises(DataError, match=r"it (is made of|passes over its pixels) more than"):
        open_picture(tmp_path / "many")


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "TIFF"])
def test_what_follows_a_picture_does_not_count(tmp_path: Path, form: str) -> None:
    tail = bytes(200_000) + b"\xff\xda" * 200
    (tmp_path / "padded").write_bytes(draw(form) + tail)
    assert open_picture(tmp_path / "padded").size == (48, 32)
