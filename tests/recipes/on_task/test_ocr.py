"""Reading the text in pictures: kept by content, and never nothing where it failed."""

import importlib.util
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from groupwise.core import ConfigError, DataError, Picture, read_picture
from groupwise.judges import ReplyCache
from groupwise_recipes.on_task.ocr import TextReader, check_ocr, describe_ocr

needs_ocr = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None,
    reason="needs RapidOCR: pip install 'groupwise[ocr]'",
)


def draw(path: Path, top: str = "", middle: str = "") -> Picture:
    picture = Image.new("RGB", (480, 240), "white")
    pen = ImageDraw.Draw(picture)
    pen.text((10, 4), top, "black", ImageFont.load_default(20))
    pen.text((10, 120), middle, "black", ImageFont.load_default(20))
    picture.save(path)
    return read_picture(path)


@needs_ocr
def test_the_words_of_a_picture_are_read_and_above_a_line_if_asked(tmp_path: Path) -> None:
    picture = draw(tmp_path / "one.png", "LibreOffice Calc", "Total revenue")
    reader = TextReader()
    assert "".join(" ".join(reader.read(picture)).split()) == "LibreOfficeCalcTotalrevenue"
    assert "".join(" ".join(reader.read(picture, top=0.2)).split()) == "LibreOfficeCalc"


@needs_ocr
def test_an_empty_picture_has_no_lines(tmp_path: Path) -> None:
    assert TextReader().read(draw(tmp_path / "one.png")) == ()


@needs_ocr
def test_what_was_read_is_kept_by_content(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "words.sqlite")
    path = tmp_path / "one.png"
    first = TextReader(cache).read(draw(path, "Firefox"))
    moved = Picture(tmp_path / "gone.png", read_picture(path).digest)
    assert TextReader(cache).read(moved) == first == ("Firefox",)
    assert TextReader(cache).read(draw(path, "Steam")) == ("Steam",)
    assert (cache.num_hits, cache.num_misses) == (1, 2)


@needs_ocr
def test_another_share_is_another_reading(tmp_path: Path) -> None:
    reader = TextReader(ReplyCache(tmp_path / "words.sqlite"))
    picture = draw(tmp_path / "one.png", "", "Steam")
    assert reader.read(picture, top=0.2) == ()
    assert reader.read(picture) == ("Steam",)


@needs_ocr
@pytest.mark.parametrize(
    "failure", ["raises", pytest.param("finds lines it cannot read", marks=pytest.mark.slow)]
)
def test_a_failed_reading_is_an_error_and_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    class Broken:
        boxes = ((0, 0, 1, 1),)
        txts = None

    def fail(picture: object) -> Broken:
        if failure == "raises":
            raise RuntimeError("no memory")
        return Broken()

    picture = draw(tmp_path / "one.png", "Steam")
    cache = ReplyCache(tmp_path / "words.sqlite")
    reader = TextReader(cache)
    monkeypatch.setattr(reader, "_engine", fail)
    with pytest.raises(DataError, match=r"cannot read the text in .*one\.png"):
        reader.read(picture)
    assert TextReader(cache).read(picture) == ("Steam",)


@needs_ocr
def test_a_picture_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        TextReader().read(Picture(tmp_path / "gone.png", "0"))


def test_without_the_extra_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("groupwise_recipes.on_task.ocr.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[ocr\]'"):
        check_ocr()
    with pytest.raises(ConfigError, match="rapidocr and onnxruntime"):
        TextReader()


def test_versions_and_settings_decide_what_is_read() -> None:
    assert {"rapidocr", "onnxruntime", "settings"} == describe_ocr().keys()
