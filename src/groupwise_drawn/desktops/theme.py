"""Colours and manners of a desktop: what one session keeps while its screens change.

A theme is picked before, and without knowing, the activity, so it says nothing about it.
"""

import colorsys
import random
from dataclasses import dataclass
from typing import Literal

__all__ = ["Color", "Palette", "Theme", "Tone", "mix", "pick_palette", "pick_theme", "tint"]

Color = tuple[int, int, int]
Tone = Literal["any", "light", "dark"]

WHITE: Color = (255, 255, 255)


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one window."""

    dark: bool
    paper: Color
    panel: Color
    edge: Color
    ink: Color
    muted: Color
    accent: Color


@dataclass(frozen=True, slots=True)
class Theme:
    """What the desktop's owner chose: colours, bars, wallpaper, zoom, script.

    ``zoom`` scales text and controls (about 0.85 to 1.3); ``han`` is the share of windows whose
    text is drawn as Chinese-looking strokes; ``wallpaper`` holds four corner colours.
    """

    dark: bool
    accent: Color
    bar: Literal["bottom", "top", "dock"]
    bar_dark: bool
    buttons: Literal["right", "left"]
    wallpaper: tuple[Color, Color, Color, Color]
    wallpaper_kind: Literal["plain", "gradient", "hills", "rays"]
    has_icons: bool
    zoom: float
    han: float


def tint(hue: float, saturation: float, value: float) -> Color:
    """The RGB colour of an HSV triple, each in [0, 1] (the hue wraps)."""
    r, g, b = colorsys.hsv_to_rgb(hue % 1.0, saturation, value)
    return round(r * 255), round(g * 255), round(b * 255)


def mix(first: Color, second: Color, share: float) -> Color:
    """A colour on the way from ``first`` (share 0) to ``second`` (share 1)."""
    r, g, b = (round(a + (c - a) * share) for a, c in zip(first, second, strict=True))
    return r, g, b


def pick_accent(rng: random.Random) -> Color:
    """A saturated colour of any hue."""
    return tint(rng.random(), rng.uniform(0.45, 0.95), rng.uniform(0.5, 0.95))


def pick_theme(rng: random.Random) -> Theme:
    """Pick a theme; the same generator state gives the same theme."""
    hue, spread = rng.random(), rng.choice((0.03, 0.12, 0.3))
    corners = tuple(
        tint(hue + rng.uniform(-spread, spread), rng.uniform(0.15, 0.9), rng.uniform(0.15, 0.95))
        for _ in range(4)
    )
    return Theme(
        dark=rng.random() < 0.4,
        accent=pick_accent(rng),
        bar=rng.choice(("bottom", "bottom", "bottom", "top", "dock")),
        bar_dark=rng.random() < 0.65,
        buttons=rng.choice(("right", "right", "right", "left")),
        wallpaper=(corners[0], corners[1], corners[2], corners[3]),
        wallpaper_kind=rng.choice(("plain", "gradient", "gradient", "hills", "rays")),
        has_icons=rng.random() < 0.7,
        zoom=rng.uniform(0.85, 1.3),
        han=rng.choice((0.0, 0.0, 0.15, 0.8)),
    )


def pick_palette(theme: Theme, rng: random.Random, tone: Tone = "any") -> Palette:
    """Pick the colours of one window of that theme; ``tone`` overrides light or dark."""
    dark = theme.dark if tone == "any" else tone == "dark"
    hue, colourful = rng.random(), rng.choice((0.0, 0.0, 0.02, 0.02, 0.05))
    accent = theme.accent if rng.random() < 0.4 else pick_accent(rng)
    if dark:
        level = rng.uniform(0.05, 0.2)
        paper = tint(hue, colourful * 4, level)
        panel = tint(hue, colourful * 4, level + rng.uniform(0.03, 0.1))
        ink = tint(hue, colourful, rng.uniform(0.82, 0.98))
    else:
        paper = tint(hue, colourful * 0.3, rng.uniform(0.96, 1.0))
        panel = tint(hue, colourful, rng.uniform(0.84, 0.95))
        ink = tint(hue, colourful * 3, rng.uniform(0.05, 0.25))
    edge, muted = mix(panel, ink, 0.18), mix(paper, ink, 0.5)
    return Palette(dark, paper, panel, edge, ink, muted, accent)
