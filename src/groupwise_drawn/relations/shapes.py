"""Silhouettes of things, each made of parts in the unit square and touching all its four sides."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw

from groupwise_drawn.relations.vocabulary import Kind

__all__ = ["Silhouette", "draw_silhouette"]

_Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Silhouette:
    """What of a rectangle a thing covers.

    Attributes:
        mask: 255 where the thing is, 0 elsewhere; nothing between.
        details: 255 where the thing is darker.
    """

    mask: Image.Image
    details: Image.Image


@dataclass(frozen=True, slots=True)
class _Part:
    """An ellipse or a rectangle of two corners, or a polygon of more."""

    points: _Points
    is_round: bool = False
    is_dark: bool = False


def _box(x1: float, y1: float, x2: float, y2: float, *, dark: bool = False) -> _Part:
    return _Part(((x1, y1), (x2, y2)), is_dark=dark)


def _disc(x1: float, y1: float, x2: float, y2: float, *, dark: bool = False) -> _Part:
    return _Part(((x1, y1), (x2, y2)), is_round=True, is_dark=dark)


def _area(*points: tuple[float, float], dark: bool = False) -> _Part:
    return _Part(points, is_dark=dark)


_PARTS: Mapping[Kind, tuple[_Part, ...]] = {
    "ball": (_disc(0, 0, 1, 1), _box(0.05, 0.43, 0.95, 0.57, dark=True)),
    "box": (_box(0, 0, 1, 1), _box(0.4, 0, 0.6, 1, dark=True), _box(0, 0.4, 1, 0.6, dark=True)),
    "chair": (_box(0, 0, 0.2, 1), _box(0, 0.5, 1, 0.65, dark=True), _box(0.8, 0.5, 1, 1)),
    "cup": (
        _disc(0.5, 0.15, 1, 0.7),
        _disc(0.66, 0.3, 0.88, 0.55, dark=True),
        _area((0, 0), (0.75, 0), (0.65, 1), (0.1, 1)),
    ),
    "lamp": (
        _area((0.25, 0), (0.75, 0), (1, 0.45), (0, 0.45)),
        _box(0.43, 0.45, 0.57, 0.9, dark=True),
        _box(0.2, 0.9, 0.8, 1, dark=True),
    ),
    "tree": (_area((0.5, 0), (1, 0.75), (0, 0.75)), _box(0.38, 0.75, 0.62, 1, dark=True)),
    "car": (
        _area((0.2, 0.4), (0.35, 0), (0.7, 0), (0.85, 0.4)),
        _box(0, 0.35, 1, 0.8),
        _disc(0.1, 0.6, 0.4, 1, dark=True),
        _disc(0.6, 0.6, 0.9, 1, dark=True),
    ),
    "house": (_area((0.5, 0), (1, 0.45), (0, 0.45), dark=True), _box(0.1, 0.45, 0.9, 1)),
    "table": (_box(0, 0, 1, 0.25, dark=True), _box(0.08, 0.2, 0.22, 1), _box(0.78, 0.2, 0.92, 1)),
    "bottle": (
        _box(0.35, 0, 0.65, 0.35, dark=True),
        _area((0.35, 0.3), (0.65, 0.3), (1, 0.5), (1, 1), (0, 1), (0, 0.5)),
    ),
}


def draw_silhouette(kind: Kind, width: int, height: int) -> Silhouette:
    """Return the silhouette of a thing that is ``width`` x ``height`` pixels large."""
    mask, details = (Image.new("L", (width, height), 0) for _ in range(2))
    for part in _PARTS[kind]:
        points = [(round(x * (width - 1)), round(y * (height - 1))) for x, y in part.points]
        _fill(ImageDraw.Draw(mask), part, points, 255)
        _fill(ImageDraw.Draw(details), part, points, 255 if part.is_dark else 0)
    return Silhouette(mask, details)


def _fill(pen: Any, part: _Part, points: list[tuple[int, int]], ink: int) -> None:
    if part.is_round:
        pen.ellipse(points, fill=ink)
    elif len(points) == 2:
        pen.rectangle(points, fill=ink)
    else:
        pen.polygon(points, fill=ink, outline=ink)
