"""The drawing tool of every window painter: boxes, text and pictures in a theme's colours.

Sizes are given in units of a 640x480 screen and scaled by ``px``. Boxes that are empty or off the
picture are skipped, so painters need no guards. What to draw is decided elsewhere.
"""

import random
from dataclasses import dataclass, field, replace

from PIL import Image, ImageDraw

from groupwise_drawn.desktops.geometry import Box
from groupwise_drawn.desktops.lettering import NUM_HAN_LINES, han_mask, text_mask
from groupwise_drawn.desktops.pictures import Kind, paint_picture
from groupwise_drawn.desktops.theme import Color, Palette, Theme, mix
from groupwise_drawn.desktops.words import screen_words

__all__ = ["Pen"]


@dataclass(frozen=True)
class Pen:
    """A picture to draw on, its scale, its colours and its source of chance.

    ``unit`` is pixels per 1/640 of the screen's width (times the theme's zoom); ``fullness`` in
    [0, 1] is how much content a window holds; ``han`` turns prose into Chinese-looking strokes.
    """

    image: Image.Image
    rng: random.Random
    theme: Theme
    palette: Palette
    unit: float
    fullness: float = 1.0
    han: bool = False
    draw: ImageDraw.ImageDraw = field(init=False)

    def __post_init__(self) -> None:
        """Bind the drawing context once."""
        object.__setattr__(self, "draw", ImageDraw.Draw(self.image))

    def recolor(self, palette: Palette) -> "Pen":
        """The same pen with another palette."""
        return replace(self, palette=palette)

    def px(self, length: float) -> int:
        """Pixels for a length in units, at least 1."""
        return max(1, round(length * self.unit))

    def many(self, low: int, high: int) -> int:
        """A count between ``low`` and ``high`` that shrinks with the window's fullness."""
        return max(low, round(self.rng.randint(low, high) * self.fullness))

    def word(self, kind: str) -> str:
        """One entry of the screen vocabulary."""
        return self.rng.choice(screen_words(kind))

    def fill(self, box: Box, color: Color) -> None:
        """Fill a rectangle."""
        if not box.empty:
            self.draw.rectangle((box.left, box.top, box.right - 1, box.bottom - 1), fill=color)

    def frame(self, box: Box, color: Color, fill: Color | None = None) -> None:
        """Draw a rectangle's one-pixel border, filled where a colour is given."""
        if not box.empty:
            corners = (box.left, box.top, box.right - 1, box.bottom - 1)
            self.draw.rectangle(corners, fill=fill, outline=color)

    def rounded(
        self, box: Box, color: Color, *, radius: float = 4, edge: Color | None = None
    ) -> None:
        """Fill a rectangle with round corners; ``radius`` in units."""
        r = min(self.px(radius), box.width // 2, box.height // 2)
        if box.width < 4 or box.height < 4 or r < 1:
            self.fill(box, color)
            return
        corners = (box.left, box.top, box.right - 1, box.bottom - 1)
        self.draw.rounded_rectangle(corners, r, fill=color, outline=edge)

    def disc(self, center: tuple[float, float], radius: float, color: Color) -> None:
        """Fill a circle; ``radius`` in pixels."""
        x, y = center
        self.draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color)

    def rule(self, start: tuple[float, float], end: tuple[float, float], color: Color) -> None:
        """Draw a one-pixel line."""
        self.draw.line((*start, *end), fill=color)

    def text(
        self,
        box: Box,
        text: str,
        *,
        size: float = 8,
        color: Color | None = None,
        align: str = "left",
        bold: bool = False,
    ) -> int:
        """Write one line, cut at the box's right edge and centred in its height.

        ``size`` in units; ``align`` is left, center or right. Returns the width in pixels.
        """
        pixels = max(3, self.px(size))
        if self.han and not text.isdigit():
            line = self.rng.randrange(NUM_HAN_LINES)
            mask = han_mask(min(40, max(1, (len(text) + 1) // 2)), pixels, line)
        else:
            mask = text_mask(text, pixels, bold)
        if box.width < 2 or box.height < 2:
            return 0
        if mask.width > box.width:
            mask = mask.crop((0, 0, box.width, mask.height))
        left = box.left
        if align != "left":
            left += (box.width - mask.width) // (2 if align == "center" else 1)
        top = box.top + (box.height - mask.height) // 2
        self.draw.bitmap((left, top), mask, fill=color or self.palette.ink)
        return mask.width

    def prose_line(self, box: Box, *, size: float, color: Color, kind: str = "phrases") -> None:
        """Fill one line of the box with running words that end before its right edge."""
        pixels, x = max(3, self.px(size)), box.left
        words = screen_words(kind)
        top = box.top + (box.height - round(pixels * 1.25)) // 2
        while True:
            if self.han:
                mask = han_mask(self.rng.randint(2, 12), pixels, self.rng.randrange(NUM_HAN_LINES))
            else:
                mask = text_mask(self.rng.choice(words), pixels)
            if x + mask.width > box.right:
                return
            self.draw.bitmap((x, top), mask, fill=color)
            x += mask.width + max(1, pixels // 4)

    def prose(
        self,
        box: Box,
        *,
        size: float = 7,
        color: Color | None = None,
        leading: float = 1.55,
        num_lines: int | None = None,
    ) -> int:
        """Write paragraphs downwards; the last line of each is short. Returns the y reached."""
        step = max(4, round(max(3, self.px(size)) * leading))
        color, y, left_over = color or self.palette.ink, box.top, self.rng.randint(2, 7)
        limit = (box.height // step) if num_lines is None else num_lines
        for _ in range(limit):
            if y + step > box.bottom:
                break
            left_over -= 1
            width = box.width if left_over else round(box.width * self.rng.uniform(0.3, 0.9))
            self.prose_line(Box(box.left, y, box.left + width, y + step), size=size, color=color)
            y += step
            if not left_over:
                left_over = self.rng.randint(2, 7)
                y += step // 2
        return y

    def bars(self, boxes: list[Box], color: Color) -> None:
        """Fill many rectangles with one colour."""
        for box in boxes:
            self.fill(box, color)

    def button(
        self, box: Box, label: str, *, color: Color | None = None, size: float = 7.5
    ) -> None:
        """A filled button with a readable label."""
        fill = color or self.palette.accent
        self.rounded(box, fill, radius=self.rng.choice((1.5, 4)))
        ink: Color = (20, 20, 20) if sum(fill) > 450 else (250, 250, 250)
        self.text(box, label, size=size, color=ink, align="center")

    def icon(self, box: Box, color: Color | None = None) -> None:
        """A small abstract symbol such as tool bars show."""
        color = color or mix(self.palette.ink, self.palette.panel, 0.25)
        shape = self.rng.randrange(4)
        if shape == 0:
            self.frame(box, color)
        elif shape == 1:
            self.disc(
                ((box.left + box.right) / 2, (box.top + box.bottom) / 2), box.width / 2, color
            )
        elif shape == 2:
            self.fill(box.inset(0, max(1, box.height // 3)), color)
        else:
            self.rule((box.left, box.bottom), (box.right, box.top), color)
            self.fill(box.cut_left(box.width / 3)[0], color)

    def icons(self, box: Box, *, size: float = 8, gap: float = 6, count: int = 99) -> None:
        """A row of symbols from the left edge on, now and then a coloured one or a divider."""
        side, step = self.px(size), self.px(size + gap)
        top = box.top + (box.height - side) // 2
        x = box.left + self.px(4)
        for _ in range(count):
            if x + side > box.right:
                return
            color = self.palette.accent if self.rng.random() < 0.15 else None
            self.icon(Box(x, top, x + side, top + side), color)
            x += step + (step // 2 if self.rng.random() < 0.2 else 0)

    def picture(self, box: Box, kind: Kind) -> None:
        """Paste a painted picture that fills the box."""
        if not box.empty:
            self.image.paste(
                paint_picture(kind, self.rng, (box.width, box.height)), (box.left, box.top)
            )
