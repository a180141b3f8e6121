"""A server that opens what it is sent sees the pictures that training and engine see."""

import base64
import io

import numpy as np
import pytest
from picture_kinds import save_kinds
from PIL import Image
from streams import draw

from groupwise.core import open_picture
from groupwise.inference.chat import encode_picture


def drop_alpha(content):
    return Image.open(io.BytesIO(content)).convert("RGB")


def put_on_white(content):
    glass = Image.open(io.BytesIO(content)).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", glass.size, "white"), glass).convert("RGB")


@pytest.mark.parametrize("decode", [drop_alpha, put_on_white])
def test_any_server_sees_the_pixels_that_training_sees(tmp_path, decode):
    for kind, picture in save_kinds(draw(tmp_path / "base.png", (60, 40))).items():
        content = base64.b64decode(encode_picture(picture).partition(",")[2])
        own = np.asarray(open_picture(picture))
        assert np.array_equal(np.asarray(decode(content)), own), kind


def test_what_every_server_reads_alike_is_sent_as_it_is(tmp_path):
    kinds = save_kinds(draw(tmp_path / "base.png", (60, 40)))
    for kind in ("jpeg", "grey", "webp"):
        content = base64.b64decode(encode_picture(kinds[kind]).partition(",")[2])
        assert content == kinds[kind].path.read_bytes(), kind


@pytest.mark.parametrize("kind", ["jpeg", "grey", "turned"])
def test_a_picture_beyond_the_limit_is_sent_within_it(tmp_path, kind):
    kinds = save_kinds(draw(tmp_path / "base.png", (60, 40)))
    sent = open_sent(encode_picture(kinds[kind], max_pixels=600))
    whole = open_sent(encode_picture(kinds[kind], max_pixels=2400))
    assert 500 < sent.width * sent.height <= 600 < 2400 == whole.width * whole.height
    assert (sent.width > sent.height) == (whole.width > whole.height)


def open_sent(url):
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
