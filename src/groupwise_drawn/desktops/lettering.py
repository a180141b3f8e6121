"""Text as cached grey masks, so that a line of text costs one paste.

Latin text uses the TrueType font embedded in Pillow; no font files are read. That font has no
Chinese glyphs, so Chinese-looking text is drawn as invented strokes: it has the texture of
Chinese at screen sizes but can't be read.
"""

import random
from functools import lru_cache
from typing import cast

from PIL import Image, ImageDraw, ImageFont

__all__ = ["han_mask", "text_mask"]

NUM_HAN_LINES = 24


@lru_cache(maxsize=64)
def load_font(size: int) -> ImageFont.FreeTypeFont:
    """The embedded font at ``size`` pixels."""
    return cast("ImageFont.FreeTypeFont", ImageFont.load_default(size))


@lru_cache(maxsize=8192)
def text_mask(text: str, size: int, bold: bool = False) -> Image.Image:
    """The grey mask of a text: its width in pixels by about 1.25 ``size``."""
    font = load_font(size)
    mask = Image.new("L", (max(1, int(font.getlength(text)) + 2), round(size * 1.25) + 1))
    draw = ImageDraw.Draw(mask)
    draw.text((0, 0), text, fill=255, font=font)
    if bold:
        draw.text((1, 0), text, fill=255, font=font)
    return mask


@lru_cache(maxsize=2048)
def han_mask(num_glyphs: int, size: int, line: int) -> Image.Image:
    """A line of invented square glyphs; ``line`` (0 to NUM_HAN_LINES - 1) picks which ones."""
    rng = random.Random(line * 1000 + size)
    pitch = size + max(1, size // 6)
    mask = Image.new("L", (max(1, num_glyphs * pitch), round(size * 1.25) + 1))
    draw = ImageDraw.Draw(mask)
    for index in range(num_glyphs):
        draw_glyph(draw, index * pitch, size, rng)
    return mask


def draw_glyph(draw: ImageDraw.ImageDraw, left: int, size: int, rng: random.Random) -> None:
    """Draw a few horizontal and vertical strokes and a slanted one into a square."""
    end, wide = size - 1, max(1, size // 12)
    for y in rng.sample(range(0, size, 2), min(3, (size + 1) // 2)):
        start, stop = rng.choice(((0, end), (0, end), (1, end // 2), (end // 2, end)))
        draw.line((left + start, y, left + stop, y), fill=200, width=wide)
    for x in rng.sample(range(0, size), min(2, size)):
        top = rng.choice((0, 0, end // 3))
        draw.line(
            (left + x, top, left + x, rng.choice((end, end, end * 2 // 3))), fill=200, width=wide
        )
    middle = left + end // 2
    draw.line((middle, end // 2, left + rng.choice((0, end)), end), fill=140, width=wide)
