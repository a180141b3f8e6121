"""Words that tell kinds of work and distractions apart, and how they are found in a text.

They are in ``vocabularies/<language>.yaml``; all languages count together, because screens mix
them. Only whole words are found: ``word`` is not in ``password``. Chinese has no spaces between
words: of the terms that begin at one place the longest counts, and none has a single character.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from groupwise.core import Config, DataError, load_config

_FOLDER = Path(__file__).parent / "vocabularies"
LANGUAGES = ("en", "zh")
_CHINESE = "\u3400-\u9fff\uf900-\ufaff"
_LETTER = rf"[^\W{_CHINESE}]"
"""A letter, digit or underscore of a language that has spaces between its words."""

Place = Literal["tasks", "screens"]


class Terms(Config):
    """What tells an activity.

    Attributes:
        names: of programs, sites and files; they count in tasks and on screens.
        tasks: what people say of it.
        screens: in window titles, menus and other elements of a screen.
    """

    names: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    screens: tuple[str, ...] = ()


class Vocabulary(Config):
    """The terms of a language.

    Attributes:
        work, distraction: terms by activity.
        weak: terms by activity that count only where no other term of the text does.
        neutral: terms that tell nothing, and hide the shorter ones in them.
    """

    work: dict[str, Terms]
    distraction: dict[str, Terms]
    weak: dict[str, Terms] = Field(default_factory=dict[str, Terms])
    neutral: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a text tells.

    Attributes:
        numbers: of different terms by activity.
        are_weak: all of them are weak.
    """

    numbers: Mapping[str, int]
    are_weak: bool = False

    @property
    def is_telling(self) -> bool:
        """Whether there are terms that are not weak."""
        return bool(self.numbers) and not self.are_weak


class TermFinder:
    """Finds terms in the texts of one place.

    Args:
        vocabularies: of all languages.
        place: where the texts are from.

    Raises:
        DataError: if a term tells two things, has no letter, or is one Chinese character.
    """

    def __init__(self, vocabularies: tuple[Vocabulary, ...], place: Place) -> None:
        listed = [pair for one in vocabularies for pair in _list_terms(one, place)]
        _check_terms([term for term, _, _ in listed])
        self._told = {_squeeze(term): (activity, is_weak) for term, activity, is_weak in listed}
        by_length = sorted((fold(term) for term, _, _ in listed), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_write_pattern, by_length)))

    def find(self, text: str) -> list[str]:
        """Return the terms in a text, folded and without spaces, as often as they are there."""
        return [_squeeze(found[0]) for found in self._pattern.finditer(fold(text))]

    def weigh(self, text: str) -> Weighed:
        """Return what a text tells: weak terms count where no others do, and neutral ones never."""
        told = [self._told[term] for term in sorted(set(self.find(text)))]
        strong = Counter(activity for activity, is_weak in told if activity and not is_weak)
        weak = Counter(activity for activity, is_weak in told if activity and is_weak)
        return Weighed(strong) if strong else Weighed(weak, are_weak=bool(weak))


def fold(text: str) -> str:
    """Return a text as it is compared: case, and full and half width, do not count."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@lru_cache(maxsize=1)
def load_vocabularies() -> tuple[Vocabulary, ...]:
    """Return the vocabularies of the package, one for each language."""
    return tuple(load_config(Vocabulary, _FOLDER / f"{name}.yaml") for name in LANGUAGES)


def list_distractions(vocabularies: tuple[Vocabulary, ...]) -> frozenset[str]:
    """Return the activities that are distractions from work."""
    return frozenset(activity for one in vocabularies for activity in one.distraction)


def _list_terms(vocabulary: Vocabulary, place: Place) -> Iterator[tuple[str, str, bool]]:
    """Yield each term, its activity (none for a neutral one), and whether it is weak."""
    strong = {**vocabulary.work, **vocabulary.distraction}
    for terms_by_activity, is_weak in ((strong, False), (vocabulary.weak, True)):
        for activity, terms in terms_by_activity.items():
            for term in (*terms.names, *(terms.tasks if place == "tasks" else terms.screens)):
                yield term, activity, is_weak
    for term in vocabulary.neutral:
        yield term, "", False


def _check_terms(terms: list[str]) -> None:
    for term, number in Counter(map(_squeeze, terms)).items():
        if not re.search(r"\w", term) or re.fullmatch(f"[{_CHINESE}]", term):
            raise DataError("a term of the vocabulary is too short", got=repr(term))
        if number > 1:
            raise DataError("a term of the vocabulary appears twice", got=repr(term))


def _squeeze(text: str) -> str:
    return "".join(fold(text).split())


def _write_pattern(term: str) -> str:
    """Return the pattern of a whole word; the engine that reads screens often loses spaces."""
    words = r"[^\S\n]*".join(map(re.escape, term.split()))
    before = rf"(?<!{_LETTER})" if re.match(_LETTER, term) else ""
    behind = rf"(?!{_LETTER})" if re.match(_LETTER, term[-1]) else ""
    return f"{before}{words}{behind}"
