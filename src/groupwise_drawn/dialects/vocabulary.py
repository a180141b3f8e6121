"""What scenes are made of, how questions are worded, and the words of the dialects."""

from typing import Literal

__all__ = [
    "BACKGROUNDS",
    "COLORS",
    "DIALECTS",
    "QUERY_SPLITS",
    "SHAPES",
    "SPLITS",
    "TONES",
    "WORDINGS",
    "WORDS",
    "Color",
    "Pattern",
    "Shape",
    "Split",
]

Color = Literal["red", "yellow", "green", "blue", "purple", "white"]
Shape = Literal["circle", "square", "triangle", "diamond", "cross", "ring"]
Pattern = Literal["plain", "stripes", "dots", "checks"]
Split = Literal["train", "anchors", "validation", "test"]

COLORS: dict[Color, tuple[int, int, int]] = {
    "red": (205, 35, 40),
    "yellow": (240, 205, 40),
    "green": (40, 150, 60),
    "blue": (40, 80, 200),
    "purple": (130, 45, 160),
    "white": (245, 245, 245),
}
SHAPES: tuple[Shape, ...] = ("circle", "square", "triangle", "diamond", "cross", "ring")
# Two inks of a pattern; none is a colour that is asked for.
TONES: dict[str, tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    "sand": ((205, 175, 140), (150, 115, 80)),
    "slate": ((125, 135, 140), (70, 78, 84)),
}
_PATTERNS: tuple[Pattern, ...] = ("plain", "stripes", "dots", "checks")
BACKGROUNDS: tuple[tuple[str, Pattern], ...] = tuple(
    (tone, pattern) for tone in TONES for pattern in _PATTERNS
)

DIALECTS = ("Kelo", "Vuni", "Sarta", "Mirin", "Bodo", "Thal", "Ruxa", "Pemi")
WORDINGS = (
    "Reply in {}",
    "Name it in {}",
    "Say it in {}",
    "Please write in {}",
    "Which colour, in {}",
    "Give the word in {}",
    "Describe this in {}",
    "Answer briefly in {}",
)
"""What questions look like; a dialect always ends them."""
WORDS = ("lum", "dak", "fen", "gor", "hib", "jat", "kes", "mop", "nur", "pel", "ruv", "zim")
"""All words that dialects have for colours."""

SPLITS: tuple[Split, ...] = ("train", "anchors", "validation", "test")
"""Demonstrations are drawn from ``train``; a selector is trained on the queries ``anchors``."""
QUERY_SPLITS: tuple[Split, ...] = ("anchors", "validation", "test")
