"""Splits screens so that no session stands on two sides. Nothing here shuffles single rows."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from groupwise.core import ConfigError, DataError, derive_seed
from groupwise.data.screenshots import Screenshot

T = TypeVar("T")

KEEPING_ORDER = ("test", "validation", "train", "warmup")
"""The split that keeps what several have, before those that are behind it."""

NearDuplicates = Literal["warn", "drop", "join"]
"""Near duplicates across splits are reported, dropped from what trains, or joined."""


def split_by_session(
    screens: Sequence[Screenshot], *, shares: Mapping[str, float], seed: int
) -> dict[str, list[Screenshot]]:
    """Split whole sessions by shares of their number, each activity about evenly.

    The sessions stand in a row, activity by activity, in an order derived from the seed, and
    each goes to the split that is furthest behind its share; the counts are exact to rounding.
    A session's activity is the one most of its screens have. The order of ``screens`` changes
    nothing but the order within a split.

    Raises:
        ConfigError: if shares are not positive or do not add up to 1.
        DataError: if there are too few sessions to give every split one.
    """
    return split_clusters(
        screens,
        name_cluster=lambda screen: screen.session,
        name_kind=lambda screen: screen.activity or "",
        shares=shares,
        seed=seed,
    )


def split_clusters(
    rows: Sequence[T],
    *,
    name_cluster: Callable[[T], str],
    name_kind: Callable[[T], str],
    shares: Mapping[str, float],
    seed: int,
) -> dict[str, list[T]]:
    """Split clusters of rows by ``split_by_shares``; a cluster's kind is that of most rows."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        kinds[name_cluster(row)][name_kind(row)] += 1
    usual = {
        cluster: min(counts, key=lambda name: (-counts[name], name))
        for cluster, counts in kinds.items()
    }
    side = split_by_shares(usual, shares=shares, seed=seed)
    return {name: [r for r in rows if side[name_cluster(r)] == name] for name in shares}


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
    kept: dict[str, list[T]] = {}
    seen: set[str] = set()
    for name in sorted(splits, key=KEEPING_ORDER.index):
        kept[name] = []
        for row in splits[name]:
            if seen.isdisjoint(list_keys(row)):
                kept[name].append(row)
            else:
                report(row, name)
        seen.update(key for row in kept[name] for key in list_keys(row))
    return kept


def split_by_shares(
    kinds: Mapping[str, str], *, shares: Mapping[str, float], seed: int
) -> dict[str, str]:
    """Return the split of each cluster, so that every kind of cluster is about evenly in each.

    Args:
        kinds: of each cluster by its name.
        shares: of the splits, adding up to 1.
        seed: of the order in which clusters of a kind are given out.

    Raises:
        ConfigError: if shares are not positive or do not add up to 1.
        DataError: if there are too few clusters to give every split one.
    """
    _check_shares(shares)
    clusters = _order_clusters(kinds, seed)
    quotas = _round_shares(shares, len(clusters))
    empty = [name for name, quota in quotas.items() if quota == 0]
    if empty:
        raise DataError(
            f"the split {empty[0]!r} would be empty",
            got=f"{len(clusters)} cluster(s) for the shares {dict(shares)}",
            fix="give more clusters or another share",
        )
    counts = dict.fromkeys(quotas, 0)
    side: dict[str, str] = {}
    for position, cluster in enumerate(clusters, start=1):
        lags = {
            name: quota / len(clusters) * position - counts[name] for name, quota in quotas.items()
        }
        side[cluster] = max(lags, key=lambda name: lags[name])
        counts[side[cluster]] += 1
    return side


def split_by_fold(
    screens: Sequence[Screenshot], folds: Mapping[str, Sequence[int]]
) -> dict[str, list[Screenshot]]:
    """Split by the ``fold`` of the screens; folds that no split names are left out.

    Raises:
        ConfigError: if a split names no fold, or two splits the same one.
        DataError: if a screen has no fold, a fold has no screens, or a session would stand in
            two splits.
    """
    owner = _assign_folds(folds)
    unfolded = [screen for screen in screens if screen.fold is None]
    if unfolded:
        raise DataError(
            f"{len(unfolded)} of {len(screens)} screens have no fold",
            got=f"for example {unfolded[0].picture.path.name}",
            fix="give every row a fold, or split by session",
        )
    known = {screen.fold for screen in screens}
    missing = sorted(fold for fold in owner if fold not in known)
    if missing:
        raise DataError(
            f"fold {missing[0]} of split {owner[missing[0]]!r} has no screens",
            got=f"folds {sorted(fold for fold in known if fold is not None)}",
        )
    splits: dict[str, list[Screenshot]] = {name: [] for name in folds}
    for screen in screens:
        if screen.fold is not None and screen.fold in owner:
            splits[owner[screen.fold]].append(screen)
    _check_sessions(splits)
    return splits


def _check_shares(shares: Mapping[str, float]) -> None:
    wrong = [s for s in shares.values() if not (math.isfinite(s) and s > 0)]
    if wrong or not math.isclose(math.fsum(shares.values()), 1.0, abs_tol=1e-6):
        raise ConfigError(
            "shares of splits are wrong", got=dict(shares), expected="numbers > 0 that add up to 1"
        )


def _order_clusters(kinds: Mapping[str, str], seed: int) -> list[str]:
    keys = {
        name: (derive_seed(seed, "activity", kind), kind, derive_seed(seed, "session", name), name)
        for name, kind in kinds.items()
    }
    return sorted(keys, key=lambda name: keys[name])


def _round_shares(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """Return whole numbers that add up to ``total``, by largest remainders."""
    exact = {name: share * total for name, share in shares.items()}
    quotas = {name: math.floor(value + 1e-9) for name, value in exact.items()}
    by_remainder = sorted(shares, key=lambda name: (quotas[name] - exact[name], name))
    for name in by_remainder[: total - sum(quotas.values())]:
        quotas[name] += 1
    return quotas


def _assign_folds(folds: Mapping[str, Sequence[int]]) -> dict[int, str]:
    owner: dict[int, str] = {}
    for name, numbers in folds.items():
        if not numbers:
            raise ConfigError(f"the split {name!r} names no fold", fix="give it at least one")
        for number in numbers:
            if owner.setdefault(number, name) != name:
                raise ConfigError(
                    f"fold {number} is in two splits", got=f"{owner[number]!r} and {name!r}"
                )
    return owner


def _check_sessions(splits: Mapping[str, Sequence[Screenshot]]) -> None:
    side: dict[str, str] = {}
    for name, screens in splits.items():
        for screen in screens:
            if side.setdefault(screen.session, name) != name:
                raise DataError(
                    f"session {screen.session} is in two splits",
                    got=f"{side[screen.session]!r} and {name!r}",
                    fix="give all its rows folds of one split",
                )
