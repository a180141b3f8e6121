"""Finds texts that are nearly the same: a large part of their runs of words is."""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

_WORD = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]")
_RUN = 3


def find_near_texts(
    texts: Sequence[str], others: Sequence[str], *, least: float = 0.8
) -> list[tuple[int, int, float]]:
    """Return each text that resembles one of the others, with the first such and how much.

    Two texts resemble each other by the share of their runs of three words that both have (the
    Jaccard index), where case, width and white space do not count. Nothing is estimated: rare
    runs find the candidates, and each is compared whole.

    Args:
        texts: those that are asked about.
        others: those that they may resemble.
        least: share from which on two texts are nearly the same, in (0, 1].

    Returns:
        The text's index, the other's and the share, in the order of the texts.
    """
    known = [_list_runs(text) for text in others]
    asked = [_list_runs(text) for text in texts]
    counts = Counter(run for runs in (*known, *asked) for run in runs)
    holders: dict[str, list[int]] = defaultdict(list)
    for index, runs in enumerate(known):
        for run in _take_rare(runs, counts, least):
            holders[run].append(index)
    found: list[tuple[int, int, float]] = []
    for index, runs in enumerate(asked):
        near = {other for run in _take_rare(runs, counts, least) for other in holders[run]}
        shares = [(other, _compare(runs, known[other])) for other in sorted(near)]
        match = next(((other, share) for other, share in shares if share >= least), None)
        if match is not None:
            found.append((index, *match))
    return found


def fold_text(text: str) -> str:
    """Return a text without its case, width and white space's kind."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _list_runs(text: str) -> frozenset[str]:
    words = _WORD.findall(fold_text(text))
    return frozenset(
        " ".join(words[start : start + _RUN]) for start in range(max(1, len(words) - _RUN + 1))
    )


def _take_rare(runs: frozenset[str], counts: Counter[str], least: float) -> list[str]:
    """Return so many of the rarest runs that near texts share one of them."""
    size = len(runs) - math.ceil(least * len(runs) - 1e-9) + 1
    return sorted(runs, key=lambda run: (counts[run], run))[:size]


def _compare(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both)
