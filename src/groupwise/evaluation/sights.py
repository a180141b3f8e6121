"""What the joint baseline sees of examples: texts, thumbnails, and what both are about."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from groupwise.core import Example, Picture, open_picture
from groupwise.evaluation.baselines import read_text

_NUM_WORDS = 120
_REACH = 16
_SMALL = (24, 18)
_EDGES = (64, 48)
_GRID = (12, 4, 16, 4)
_NUM_BINS = 16
_NUM_FEATURES = 3 * _SMALL[0] * _SMALL[1] + 2 * _GRID[0] * _GRID[2] + 3 * _NUM_BINS
_WIDTHS = (0, _NUM_FEATURES, 3 * _NUM_FEATURES)
"""Features of no picture, of one, and of several."""
Numbers = NDArray[np.float64]
Names = NDArray[np.str_]
Embed = Callable[[Sequence[Example]], Mapping[str, NDArray[np.float32]]]
"""Returns features (examples, width) by what they are, such as those of a published model."""


@dataclass(frozen=True, slots=True)
class Sights:
    """What is seen of examples, and what training examples tell beside the label.

    Attributes:
        texts: (n,).
        pixels: (n, features); no features where there are no pictures.
        clusters: (n,).
        shown: (n,) what the pictures show; empty where that is not told.
        asked: (n,) what the texts are about, in the same words; empty where that is not told.
        words: (n,) what was read in the pictures; empty where nothing was read in any.
        embedded: (n, width) each, features of published models by what they are.
    """

    texts: Names
    pixels: Numbers
    clusters: Names
    shown: Names
    asked: Names
    words: Names
    embedded: Mapping[str, NDArray[np.float32]] = field(
        default_factory=dict[str, NDArray[np.float32]]
    )

    def take(self, rows: NDArray[np.intp]) -> "Sights":
        """Return some of the examples."""
        is_told, is_read = len(self.shown) > 0, len(self.words) > 0
        return Sights(
            texts=self.texts[rows],
            pixels=self.pixels[rows],
            clusters=self.clusters[rows],
            shown=self.shown[rows] if is_told else self.shown,
            asked=self.asked[rows] if is_told else self.asked,
            words=self.words[rows] if is_read else self.words,
            embedded={name: found[rows] for name, found in self.embedded.items()},
        )


def see(
    examples: Sequence[Example],
    concepts: tuple[str, str] | None = None,
    *,
    read: str | None = None,
    like: Sights | None = None,
    embed: Embed | None = None,
) -> Sights:
    """Return what is seen of examples.

    Args:
        examples: with any number of pictures each.
        concepts: fields that tell what pictures show and what texts are about; what some of the
            examples do not tell is left out.
        read: field with what was read in the pictures.
        like: the features are those of these; None: of as many pictures as the examples have.
        embed: gives features of published models; None: there are none.
    """
    fields = concepts or ()
    told = [[str(e.fields[name]) for e in examples if name in e.fields] for name in fields]
    is_told = len(told) == 2 and all(len(column) == len(examples) for column in told)
    shown, asked = told if is_told else ([], [])
    words = [str(example.fields.get(read) or " ") for example in examples] if read else []
    is_read = any(one.strip() for one in words) if like is None else len(like.words) > 0
    num_pictures = max((len(example.pictures) for example in examples), default=0)
    width = _WIDTHS[min(num_pictures, 2)] if like is None else like.pixels.shape[1]
    known: dict[str, Numbers] = {}
    return Sights(
        # Letters are counted, and of no letter at all nothing can be.
        texts=np.asarray([read_text(example) or " " for example in examples]),
        pixels=np.stack([_join_pictures(example.pictures, width, known) for example in examples]),
        clusters=np.asarray([example.cluster for example in examples]),
        shown=np.asarray(shown, dtype=np.str_),
        asked=np.asarray(asked, dtype=np.str_),
        words=np.asarray(words if is_read else [], dtype=np.str_),
        embedded={} if embed is None else embed(examples),
    )


def pair_words(text: str) -> list[str]:
    """Return the ordered pairs of words that stand close to each other."""
    words = re.findall(r"\w+", text.lower())[:_NUM_WORDS]
    return [
        f"{first} {second}"
        for place, first in enumerate(words)
        for second in words[place + 1 : place + 1 + _REACH]
    ]


def _join_pictures(pictures: Sequence[Picture], width: int, known: dict[str, Numbers]) -> Numbers:
    """Return the mean (width,) over pictures, or mean, lowest and highest; of none it is 0."""
    if not pictures or not width:
        return np.zeros(width)
    own = np.stack([_describe(picture, known) for picture in pictures])
    parts = (own.mean(0), own.min(0), own.max(0))
    return np.concatenate(parts)[:width]


def _describe(picture: Picture, known: dict[str, Numbers]) -> Numbers:
    """Return a thumbnail, where its edges are, and how often which colours are in it."""
    if picture.digest not in known:
        image = open_picture(Path(picture.path))
        pixels = np.asarray(image.resize(_SMALL), dtype=np.float64) / 255
        gray = np.asarray(image.convert("L").resize(_EDGES), dtype=np.float64) / 255
        edges = [np.abs(g).reshape(_GRID).mean((1, 3)).ravel() for g in np.gradient(gray)]
        colours = [
            np.histogram(pixels[..., c], _NUM_BINS, (0, 1))[0] / pixels[..., c].size
            for c in range(3)
        ]
        known[picture.digest] = np.concatenate([pixels.ravel(), *edges, *colours])
    return known[picture.digest]
