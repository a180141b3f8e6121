"""Variants of a correction: its picture a little changed, its words replaced by synonyms.

Each has its own seed, derived from the item's id, so that it is the same in every round.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from PIL import ImageFilter

from groupwise.core import derive_seed, open_picture, parse_yaml
from groupwise.data.augmentation import augment_picture
from groupwise.learning.settings import BLUR, SYNONYMS, VariantSettings
from groupwise.serving import Request

_SYNONYMS = Path(__file__).parent / "synonyms"


@dataclass(frozen=True, slots=True)
class Thesaurus:
    """Sets of words that stand for one another.

    Attributes:
        pattern: finds any of them, the longest first.
        others: of each word, in lower case, the others of its set.
    """

    pattern: re.Pattern[str]
    others: Mapping[str, tuple[str, ...]]


def make_variants(
    request: Request,
    *,
    worded: Sequence[str],
    settings: VariantSettings,
    seed: int,
    folder: Path,
) -> list[Request]:
    """Return the variants of a row; those that are alike, or like the row, once."""
    known = {request.digest()}
    found: list[Request] = []
    for number in range(settings.num):
        own = derive_seed(seed, "variant", request.id, number)
        variant = Request(
            id=f"{request.id}-{number + 1}",
            row=_reword(request.row, worded, random.Random(own)),
            pictures=tuple(
                _change(path, settings, seed=derive_seed(own, place), folder=folder)
                for place, path in enumerate(request.pictures)
            ),
        )
        if variant.digest() not in known:
            known.add(variant.digest())
            found.append(variant)
    return found


def replace_words(text: str, rng: random.Random, *, probability: float = SYNONYMS) -> str:
    """Return a text in which words became synonyms; capitals at their beginning stay."""

    def pick(match: re.Match[str]) -> str:
        if rng.random() >= probability:
            return match[0]
        other = rng.choice(thesaurus.others[match[0].lower()])
        return other[0].upper() + other[1:] if match[0][0].isupper() else other

    thesaurus = load_thesaurus()
    return thesaurus.pattern.sub(pick, text)


@cache
def load_thesaurus() -> Thesaurus:
    """Return the synonyms of all languages."""
    others: dict[str, tuple[str, ...]] = {}
    for path in sorted(_SYNONYMS.glob("*.yaml")):
        for words in parse_yaml(path.read_text(encoding="utf-8"))["sets"]:
            for word in words:
                others[word] = tuple(other for other in words if other != word)
    longest_first = sorted(others, key=lambda word: (-len(word), word))
    # Chinese has no spaces between words; Latin words are whole ones.
    parts = [rf"\b{re.escape(w)}\b" if w.isascii() else re.escape(w) for w in longest_first]
    return Thesaurus(re.compile("|".join(parts), re.IGNORECASE), others)


def _reword(row: Mapping[str, Any], worded: Sequence[str], rng: random.Random) -> dict[str, Any]:
    return {
        name: replace_words(value, rng) if name in worded and isinstance(value, str) else value
        for name, value in row.items()
    }


def _change(path: Path, settings: VariantSettings, *, seed: int, folder: Path) -> Path:
    changed = augment_picture(open_picture(path), settings, seed=seed)
    radius = random.Random(derive_seed(seed, "blur")).uniform(0, BLUR)
    target = folder / f"{path.name}-{seed}.png"
    changed.filter(ImageFilter.GaussianBlur(radius)).save(target, "PNG", compress_level=1)
    return target
