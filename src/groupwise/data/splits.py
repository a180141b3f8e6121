"""Splits whole clusters, never single rows, and finds texts that would stand in two splits."""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from groupwise.core import ConfigError, DataError, derive_seed

T = TypeVar("T")

KEEPING_ORDER = ("test", "validation", "train", "warmup")
"""The split that keeps what several have, before those that are behind it."""
NearDuplicates = Literal["warn", "drop", "join"]
"""Near duplicates across splits are reported, dropped from what trains, or joined."""

_WORD = r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]"  # compiled when texts are compared
_RUN = 3


def split_clusters(
    rows: Sequence[T],
    *,
    name_cluster: Callable[[T], str],
    name_kind: Callable[[T], str],
    shares: Mapping[str, float],
    seed: int,
) -> dict[str, list[T]]:
    """Split clusters of rows by ``split_by_shares``; a cluster's kind is that of most rows.

    The order of ``rows`` changes nothing but the order within a split.
    """
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        kinds[name_cluster(row)][name_kind(row)] += 1
    usual = {one: min(counts, key=lambda k: (-counts[k], k)) for one, counts in kinds.items()}
    side = split_by_shares(usual, shares=shares, seed=seed)
    return {name: [r for r in rows if side[name_cluster(r)] == name] for name in shares}


def split_by_shares(
    kinds: Mapping[str, str], *, shares: Mapping[str, float], seed: int
) -> dict[str, str]:
    """Return the split of each cluster, so that every kind of cluster is about evenly in each.

    The clusters stand in a row, kind by kind, in an order derived from the seed, and each goes to
    the split that is furthest behind its share; the counts are exact to rounding.

    Args:
        kinds: of each cluster by its name.
        shares: of the splits, adding up to 1.
        seed: of the order in which clusters of a kind are given out.

    Raises:
        ConfigError: if shares are not positive or do not add up to 1.
        DataError: if there are too few clusters to give every split one.
    """
    wrong = [s for s in shares.values() if not (math.isfinite(s) and s > 0)]
    if wrong or not math.isclose(math.fsum(shares.values()), 1.0, abs_tol=1e-6):
        raise ConfigError(
            "shares of splits are wrong", got=dict(shares), expected="numbers > 0 that add up to 1"
        )
    clusters = sorted(
        kinds,
        key=lambda name: (
            *(derive_seed(seed, "activity", kinds[name]), kinds[name]),
            *(derive_seed(seed, "session", name), name),
        ),
    )
    # Whole numbers that add up to that of the clusters, by largest remainders.
    exact = {name: share * len(clusters) for name, share in shares.items()}
    quotas = {name: math.floor(value + 1e-9) for name, value in exact.items()}
    by_remainder = sorted(shares, key=lambda name: (quotas[name] - exact[name], name))
    for name in by_remainder[: len(clusters) - sum(quotas.values())]:
        quotas[name] += 1
    empty = [name for name, quota in quotas.items() if quota == 0]
    if empty:
        raise DataError(
            f"the split {empty[0]!r} would be empty",
            got=f"{len(clusters)} cluster(s) for the shares {dict(shares)}",
            fix="give more clusters or another share",
        )
    side, counts = dict[str, str](), Counter[str]()
    for position, cluster in enumerate(clusters, start=1):
        due = {name: quota / len(clusters) * position for name, quota in quotas.items()}
        side[cluster] = max(due, key=lambda name: due[name] - counts[name])
        counts[side[cluster]] += 1
    return side


def drop_shared(
    splits: Mapping[str, list[T]],
    *,
    list_keys: Callable[[T], Iterable[str]],
    report: Callable[[T, str], None],
) -> dict[str, list[T]]:
    """Keep what several splits share in one of them: the first of ``KEEPING_ORDER``.

    Args:
        splits: rows by split.
        list_keys: what no two splits may share.
        report: is told each row that is dropped, and the split that it was of.
    """
    kept, seen = dict[str, list[T]](), set[str]()
    for name in sorted(splits, key=KEEPING_ORDER.index):
        kept[name] = []
        for row in splits[name]:
            if seen.isdisjoint(list_keys(row)):
                kept[name].append(row)
            else:
                report(row, name)
        seen.update(key for row in kept[name] for key in list_keys(row))
    return kept


def fold_text(text: str) -> str:
    """Return a text without its case, width and white space's kind."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


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

    def list_runs(text: str) -> frozenset[str]:
        words = re.findall(_WORD, fold_text(text))
        starts = range(max(1, len(words) - _RUN + 1))
        return frozenset(" ".join(words[start : start + _RUN]) for start in starts)

    known, asked = list(map(list_runs, others)), list(map(list_runs, texts))
    counts = Counter(run for runs in (*known, *asked) for run in runs)

    def take_rare(runs: frozenset[str]) -> list[str]:
        """Return so many of the rarest runs that near texts share one of them."""
        size = len(runs) - math.ceil(least * len(runs) - 1e-9) + 1
        return sorted(runs, key=lambda run: (counts[run], run))[:size]

    holders: dict[str, list[int]] = defaultdict(list)
    for index, runs in enumerate(known):
        for run in take_rare(runs):
            holders[run].append(index)
    found: list[tuple[int, int, float]] = []
    for index, runs in enumerate(asked):
        for other in sorted({other for run in take_rare(runs) for other in holders[run]}):
            both = len(runs & known[other])
            share = both / (len(runs) + len(known[other]) - both)
            if share >= least:
                found.append((index, other, share))
                break
    return found
