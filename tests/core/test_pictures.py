import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from groupwise.core import DataError, open_picture, read_picture, store_picture


def test_pictures_are_turned_upright(tmp_path):
    picture = Image.new("RGB", (30, 20), "red")
    picture.putpixel((0, 0), (0, 0, 255))
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the scene is at the right of the file
    picture.save(tmp_path / "turned.png", exif=exif)
    opened = open_picture(tmp_path / "turned.png")
    assert opened.size == (20, 30)
    assert opened.getpixel((19, 0)) == (0, 0, 255)


@pytest.mark.parametrize("mode", ["CMYK", "L", "P", "RGBA", "1"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    path = tmp_path / ("picture.tiff" if mode == "CMYK" else "picture.png")
    Image.new("RGB", (8, 6), (255, 0, 0)).convert(mode).save(path)
    opened = open_picture(read_picture(path))
    assert (opened.mode, opened.size) == ("RGB", (8, 6))
    if mode in {"CMYK", "RGBA"}:
        red, green, blue = opened.getpixel((3, 3))
        assert red > 200
        assert max(green, blue) < 60


def test_truncated_missing_and_fake_pictures_are_data_errors(tmp_path):
    Image.effect_noise((64, 64), 50).save(tmp_path / "whole.png")
    content = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "half.png").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.png").write_text("no picture")
    for name in ("half.png", "text.png"):
        with pytest.raises(DataError, match=f"cannot decode.*{name}"):
            open_picture(tmp_path / name)
    with pytest.raises(DataError, match="does not exist"):
        open_picture(tmp_path / "missing.png")


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


@pytest.mark.parametrize("name", ["deep.png", "deep.tiff", "deep.pgm"])
def test_sixteen_bits_become_their_high_bytes(tmp_path, name):
    ramp = draw_ramp(bits=16)
    Image.fromarray(ramp).save(tmp_path / name)
    opened = np.asarray(open_picture(tmp_path / name))
    assert (opened == (ramp >> 8)[..., None]).all()


@pytest.mark.parametrize(
    "values", [np.full((4, 4), 70_000, np.int32), np.full((4, 4), -1, np.int32)]
)
def test_numbers_beyond_sixteen_bits_are_refused(tmp_path, values):
    Image.fromarray(values).save(tmp_path / "wide.tiff")
    with pytest.raises(DataError, match=r"wide\.tiff .*16 bits"):
        open_picture(tmp_path / "wide.tiff")


def test_pictures_of_floats_are_refused(tmp_path):
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "floats.tiff")
    with pytest.raises(DataError, match="no range"):
        open_picture(tmp_path / "floats.tiff")


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
