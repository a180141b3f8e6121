"""Loads a user's own rows: every row is used in one split, or dropped with a counted reason."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.core import (
    DataError,
    Example,
    Finding,
    derive_seed,
    digest_bytes,
    digest_json,
    find_nearest,
    report_places,
)
from groupwise.data.drops import DropLog
from groupwise.data.joining import drop_near, join_near_duplicates
from groupwise.data.perceptual import Sight
from groupwise.data.splits import NearDuplicates, drop_shared, split_clusters
from groupwise.data.tables.rows import Item, ReadAnswer, RowReader, list_picture_paths
from groupwise.data.tables.settings import SPLITS, TableSettings
from groupwise.data.tables.sources import SourceRow, read_source
from groupwise.data.tables.templates import list_columns
from groupwise.data.tables.values import (
    UnusableRowError,
    clean_value,
    digest_picture,
    refuse_outside,
)


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """What came of a user's rows: ``num_rows`` is the number of all examples and drops.

    Attributes:
        splits: examples of train, validation and test.
        targets: what the warm-up teaches to answer, by example id; not every row needs one.
        drops: rows that are not used.
        num_rows: rows that were found.
        sources: rows of each split by file, or by split of the hub.
        findings: what a reader of any result has to know of the data.
    """

    splits: Mapping[str, Sequence[Example]]
    targets: Mapping[str, str]
    drops: DropLog
    num_rows: int
    sources: Mapping[str, Mapping[str, int]]
    findings: Sequence[Finding]


def load_table(
    settings: TableSettings,
    folder: Path,
    *,
    seed: int,
    read_answer: ReadAnswer | None = None,
    near: NearDuplicates = "warn",
    mirrored: bool = False,
) -> LoadedTable:
    """Load and split a user's rows.

    Rows of a split that ask the same (prompt and pictures) and agree in their answer are used once;
    where they disagree, none is used. Over splits, what asks the same or shows the same picture
    stays in one: test, else validation, else train.

    Args:
        settings: where the rows are and what their columns mean.
        folder: for pictures that rows hold as bytes.
        seed: of the splits by shares, and of which rows ``max_rows`` keeps.
        read_answer: returns an answer as it is compared, or None if no completion can give it;
            None: any text can be an answer.
        near: what is done about pictures of two splits that look alike: nothing (``warn``), rows
            that train are dropped (``drop``), or clusters joined before they are split (``join``).
        mirrored: whether mirror images look alike.

    Raises:
        DataError: if there are no rows, a column is not there, no row can be used, a cluster is
            in two given splits, near duplicates join too much, or a split is empty.
    """
    drops = DropLog()
    rows = read_source(settings, drops)
    num_rows = len(rows) + drops.total
    _check_columns(rows, settings)
    _refuse_outside(rows, settings)
    items = _read_items(rows, RowReader(settings, folder, read_answer), drops)
    if near == "join":
        items = _join_near(items, mirrored=mirrored)
    given = {split: [item for item in items if item.split == split] for split in SPLITS}
    if settings.columns.cluster:
        _check_clusters(given)
    once = {split: _drop_repeated(found, drops) for split, found in given.items()}
    _refuse_empty({"train": once["train"]}, drops)
    splits = _keep_apart(_divide(once, settings, seed), drops)
    if near == "drop":
        splits = drop_near(
            splits,
            list_paths=lambda item: [picture.path for picture in item.example.pictures],
            report=_tell("near duplicate of another split", drops),
            mirrored=mirrored,
        )
    splits = {s: _cap(found, settings.max_rows.get(s), seed, drops) for s, found in splits.items()}
    _refuse_empty(splits, drops)
    used = [item for split in SPLITS for item in splits[split]]
    return LoadedTable(
        splits={split: [item.example for item in splits[split]] for split in SPLITS},
        targets={item.example.id: item.target for item in used if item.target is not None},
        drops=drops,
        num_rows=num_rows,
        sources={s: Counter(item.row.source for item in splits[s]) for s in SPLITS},
        findings=_find_test_part(splits["train"]),
    )


def load_labelled(
    settings: TableSettings, path: Path, folder: Path, *, read_answer: ReadAnswer | None = None
) -> tuple[list[Example], DropLog]:
    """Load the rows of another file or folder with the same columns; no split is read.

    Args:
        settings: what the columns mean.
        path: a file, a folder, or a pattern of files.
        folder: for pictures that rows hold as bytes.
        read_answer: as for ``load_table``.

    Returns:
        The examples, of rows that ask the same the first, and the rows that are not used.

    Raises:
        DataError: if there are no rows, a column is not there, or no row can be used.
    """
    columns = settings.columns.model_copy(update={"split": None, "target": None})
    given = {"files": {"test": (str(path),)}, "hub": None, "columns": columns}
    settings = settings.model_copy(update=given)
    drops = DropLog()
    rows = read_source(settings, drops)
    _check_columns(rows, settings)
    _refuse_outside(rows, settings)
    items = _read_items(rows, RowReader(settings, folder, read_answer), drops)
    return [item.example for item in _drop_repeated(items, drops)], drops


def _refuse_outside(rows: Sequence[SourceRow], settings: TableSettings) -> None:
    """Refuse rows of files that name pictures outside the folder of their file."""
    if settings.hub or settings.allow_outside:
        return
    by_folder: dict[Path, list[tuple[str, Path]]] = defaultdict(list)
    for row in rows:
        for path in list_picture_paths(row, settings.columns.pictures):
            by_folder[row.folder].append((row.where, path))
    for folder, places in by_folder.items():
        refuse_outside(places, folder, setting="data.allow_outside")


def digest_table(settings: TableSettings) -> dict[str, str]:
    """Return the digests of all that ``load_table`` reads, by the setting that says so.

    Returns:
        Of ``columns``: rows, and the content of the pictures they name, wherever these are; of
        ``files``, where there are pictures: their places, which examples name.

    Raises:
        DataError: if a file or data set cannot be read.
    """
    drops = DropLog()
    rows = read_source(settings, drops)
    places = [list_picture_paths(row, settings.columns.pictures) for row in rows]
    paths = sorted({path for some in places for path in some})
    digests = {path: digest_picture(path) for path in paths}
    values = [
        [
            *(row.where, row.split, row.is_test_part),
            clean_value(row.values, write_bytes=digest_bytes),
            [digests[path] for path in some],
        ]
        for row, some in zip(rows, places, strict=True)
    ]
    found = {"columns": digest_json([values, drops.to_json()])}
    return {**found, "files": digest_json([*map(str, paths)])} if paths else found


def _check_columns(rows: Sequence[SourceRow], settings: TableSettings) -> None:
    found = dict.fromkeys(key for row in rows for key in row.values)
    texts = settings.columns.list_texts()
    for name, text in [*texts, *([("system", settings.system)] if settings.system else [])]:
        for column in sorted(list_columns(text)) if name != "system" or "{" in text else ():
            if column not in found:
                near = find_nearest(column, found)
                setting = name if name == "system" else f"columns.{name}"
                raise DataError(
                    f"data.{setting} needs the column {column!r}, which is not there",
                    got=f"the columns {', '.join(found)}",
                    fix=f"did you mean {near!r}?" if near else None,
                )


def _read_items(rows: Iterable[SourceRow], reader: RowReader, drops: DropLog) -> list[Item]:
    items: list[Item] = []
    names: set[str] = set()
    for row in rows:
        try:
            item = reader.read(row)
            if item.name is not None and item.name in names:
                raise UnusableRowError("id of another row", item.name)
        except UnusableRowError as error:
            drops.add(error.reason, f"{row.where} ({error.detail})")
            continue
        names |= {item.name} if item.name else set()
        items.append(item)
    if not items:
        counts = ", ".join(f"{number} x {reason}" for reason, number in drops.counts.items())
        raise DataError("no row can be used", got=counts, fix=f"the first: {drops.rows[0].where}")
    return items


def _check_clusters(given: Mapping[str, Sequence[Item]]) -> None:
    side: dict[str, str] = {}
    for split, items in given.items():
        for item in items:
            cluster = item.example.cluster
            if side.setdefault(cluster, split) != split:
                raise DataError(
                    f"the cluster {cluster!r} is in two splits",
                    got=f"{side[cluster]} and {split}",
                    fix="give all its rows one split, or leave data.columns.cluster out",
                )


def _drop_repeated(items: Sequence[Item], drops: DropLog) -> list[Item]:
    """Return the first of the rows that ask the same, and none of those that disagree."""
    alike: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        alike[item.content].append(item)
    for same in alike.values():
        agree = len({item.example.label for item in same}) == 1
        reason = "repeats another row" if agree else "same prompt as another row, other answer"
        for item in same[1:] if agree else same:
            drops.add(reason, f"{item.row.where} ({same[0].row.where})")
    return [same[0] for same in alike.values() if len({i.example.label for i in same}) == 1]


def _divide(
    given: Mapping[str, list[Item]], settings: TableSettings, seed: int
) -> dict[str, list[Item]]:
    """Return all splits: those that are not given are taken from the rows for training."""
    shares = {s: share for s, share in settings.shares.items() if s == "train" or not given[s]}
    if len(shares) == 1:
        return dict(given)
    total = sum(shares.values())
    taken = split_clusters(
        given["train"],
        name_cluster=lambda item: item.example.cluster,
        name_kind=lambda item: item.example.label or "",
        shares={split: share / total for split, share in shares.items()},
        seed=seed,
    )
    return {split: taken.get(split, given[split]) for split in SPLITS}


def _tell(reason: str, drops: DropLog) -> Callable[[Item, str], None]:
    return lambda item, split: drops.add(reason, f"{item.row.where} ({split})")


def _keep_apart(splits: Mapping[str, list[Item]], drops: DropLog) -> dict[str, list[Item]]:
    kept = drop_shared(
        splits,
        list_keys=lambda item: [item.content],
        report=_tell("prompt of another split", drops),
    )
    return drop_shared(
        kept,
        list_keys=lambda item: [picture.digest for picture in item.example.pictures],
        report=_tell("picture of another split", drops),
    )


def _join_near(items: Sequence[Item], *, mirrored: bool) -> list[Item]:
    """Return the items with one cluster for those whose pictures look alike."""
    sights = [Sight(p.path, i.example.cluster) for i in items for p in i.example.pictures]
    joined = join_near_duplicates(sights, mirrored=mirrored)

    def join(item: Item) -> Item:
        own = item.example.cluster
        return replace(item, example=replace(item.example, cluster=joined.get(own, own)))

    return [join(item) for item in items]


def _cap(items: list[Item], most: int | None, seed: int, drops: DropLog) -> list[Item]:
    if most is None or len(items) <= most:
        return items
    drawn = sorted(items, key=lambda item: derive_seed(seed, "rows", item.example.id))[:most]
    ids = {item.example.id for item in drawn}
    for item in items:
        if item.example.id not in ids:
            drops.add("more than max_rows", item.row.where)
    return [item for item in items if item.example.id in ids]


def _refuse_empty(splits: Mapping[str, Sequence[Item]], drops: DropLog) -> None:
    for split, items in splits.items():
        if not items:
            raise DataError(
                f"the split {split} is empty",
                got=drops.counts or None,
                fix="give it rows (data.files, data.splits) or a share (data.shares)",
            )


def _find_test_part(train: Sequence[Item]) -> list[Finding]:
    counts = Counter(item.row.source for item in train if item.is_test_part)
    message = (
        f"{counts.total():,} of {len(train):,} rows for training come from a published test part: "
        "no number here can be compared with results on it"
    )
    places = [f"{source} ({number:,} rows)" for source, number in counts.items()]
    return report_places("warning", "trains_on_test_part", message, places)
