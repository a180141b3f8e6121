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
    return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))


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
    mask = Image.new("L", (max(1, num_glyphs * (size + 1)), round(size * 1.25) + 1))
    draw = ImageDraw.Draw(mask)
    for index in range(num_glyphs):
        draw_glyph(draw, index * (size + 1), size, rng)
    return mask


def draw_glyph(draw: ImageDraw.ImageDraw, left: int, size: int, rng: random.Random) -> None:
    """Draw a few horizontal and vertical strokes and a slanted one into a square."""
    end = size - 1
    for _ in range(rng.randint(2, 3)):
        y = rng.randint(0, end)
        draw.line((left + rng.randint(0, 1), y, left + end - rng.randint(0, 2), y), fill=210)
    for _ in range(rng.randint(1, 2)):
        x = left + rng.randint(1, max(1, end - 1))
        draw.line((x, rng.randint(0, end // 2), x, end - rng.randint(0, 1)), fill=190)
    middle = left + end // 2
    draw.line((middle, end // 2, left + rng.choice((0, end)), end), fill=150)
