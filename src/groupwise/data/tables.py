"""Loads a user's own rows: every row is used in one split, or dropped with a counted reason."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
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
from groupwise.data.columns import SPLITS, TableSettings, list_columns
from groupwise.data.examples import DropLog
from groupwise.data.files import read_source
from groupwise.data.rows import (
    Item,
    ReadAnswer,
    RowReader,
    UnusableRowError,
    clean_value,
    digest_picture,
    list_picture_paths,
    refuse_outside,
)
from groupwise.data.splits import NearDuplicates, drop_shared, split_clusters


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """What came of a user's rows: ``num_rows`` is the number of all examples and drops."""

    splits: Mapping[str, Sequence[Example]]  # train, validation and test
    targets: Mapping[str, str]  # what the warm-up teaches, by example id; not every row needs one
    drops: DropLog  # rows that are not used
    num_rows: int  # rows that were found
    sources: Mapping[str, Mapping[str, int]]  # rows of each split by file, or by split of the hub
    findings: Sequence[Finding]  # what a reader of any result has to know of the data


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
    items, drops = _read_items(settings, folder, read_answer)
    num_rows = len(items) + drops.total
    if near == "join":
        from groupwise.data.near import Sight, join_near_duplicates

        sights = [Sight(p.path, i.example.cluster) for i in items for p in i.example.pictures]
        joined = join_near_duplicates(sights, mirrored=mirrored)
        for place, item in enumerate(items):
            own = item.example.cluster
            example = replace(item.example, cluster=joined.get(own, own))
            items[place] = replace(item, example=example)
    splits = _split_items(items, drops, settings, seed)

    def log(reason: str) -> Callable[[Item, str], None]:
        return lambda item, split: drops.add(reason, f"{item.row.where} ({split})")

    keys: dict[str, Callable[[Item], list[str]]] = {
        "prompt": lambda item: [item.content],
        "picture": lambda item: [picture.digest for picture in item.example.pictures],
    }
    for what, list_keys in keys.items():
        report = log(f"{what} of another split")
        splits = drop_shared(splits, list_keys=list_keys, report=report)
    if near == "drop":
        from groupwise.data.near import drop_near

        splits = drop_near(
            splits,
            list_paths=lambda item: [picture.path for picture in item.example.pictures],
            report=log("near duplicate of another split"),
            mirrored=mirrored,
        )
    for split, most in settings.max_rows.items():
        drawn = sorted(splits[split], key=lambda i: derive_seed(seed, "rows", i.example.id))
        ids = {item.example.id for item in drawn[:most]}
        for item in (item for item in splits[split] if item.example.id not in ids):
            drops.add("more than max_rows", item.row.where)
        splits[split] = [item for item in splits[split] if item.example.id in ids]
    for split in SPLITS:
        _refuse_empty(split, splits[split], drops)
    used = [item for split in SPLITS for item in splits[split]]
    tests = Counter(item.row.source for item in splits["train"] if item.row.is_test_part)
    message = (
        f"{tests.total():,} of {len(splits['train']):,} rows for training come from a published "
        "test part: no number here can be compared with results on it"
    )
    places = [f"{source} ({number:,} rows)" for source, number in tests.items()]
    return LoadedTable(
        splits={split: [item.example for item in splits[split]] for split in SPLITS},
        targets={item.example.id: item.target for item in used if item.target is not None},
        drops=drops,
        num_rows=num_rows,
        sources={s: Counter(item.row.source for item in splits[s]) for s in SPLITS},
        findings=report_places("warning", "trains_on_test_part", message, places),
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
    items, drops = _read_items(settings.model_copy(update=given), folder, read_answer)
    return [item.example for item in _drop_repeated(items, drops)], drops


def digest_table(settings: TableSettings) -> dict[str, str]:
    """Return the digests of all that ``load_table`` reads, by the setting that says so.

    Returns:
        Of ``columns``: rows, and the content of the pictures they name, wherever these are; of
        ``files``, where there are pictures: their places, which examples name.

    Raises:
        DataError: if a file or data set cannot be read.
    """
    drops, pictures = DropLog(), settings.columns.pictures
    rows = [(row, list_picture_paths(row, pictures)) for row in read_source(settings, drops)]
    paths = sorted({path for _, some in rows for path in some})
    digests = {path: digest_picture(path) for path in paths}
    values = [
        [
            *(row.where, row.split, row.is_test_part),
            clean_value(row.values, write_bytes=digest_bytes),
            [digests[path] for path in some],
        ]
        for row, some in rows
    ]
    found = {"columns": digest_json([values, drops.to_json()])}
    return {**found, "files": digest_json([*map(str, paths)])} if paths else found


def _read_items(
    settings: TableSettings, folder: Path, read_answer: ReadAnswer | None
) -> tuple[list[Item], DropLog]:
    """Return what the rows say, at least one, and those that cannot be used.

    Settings that need a column that no row has are refused.
    """
    drops = DropLog()
    rows = read_source(settings, drops)
    there = dict.fromkeys(key for row in rows for key in row.values)
    texts = [(f"columns.{name}", text) for name, text in settings.columns.list_texts()]
    if settings.system and "{" in settings.system:
        texts.append(("system", settings.system))
    for setting, text in texts:
        for column in sorted(list_columns(text) - there.keys()):
            near = find_nearest(column, there)
            raise DataError(
                f"data.{setting} needs the column {column!r}, which is not there",
                got=f"the columns {', '.join(there)}",
                fix=f"did you mean {near!r}?" if near else None,
            )
    pictures = settings.columns.pictures
    if not (settings.hub or settings.allow_outside):
        refuse_outside(
            (r.where, p, r.folder) for r in rows for p in list_picture_paths(r, pictures)
        )
    reader, items = RowReader(settings, folder, read_answer), list[Item]()
    for row in rows:
        try:
            items.append(reader.read(row))
        except UnusableRowError as error:
            drops.add(error.reason, f"{row.where} ({error.detail})")
    if not items:
        counts = ", ".join(f"{number} x {reason}" for reason, number in drops.counts.items())
        raise DataError("no row can be used", got=counts, fix=f"the first: {drops.rows[0].where}")
    return items, drops


def _split_items(
    items: Sequence[Item], drops: DropLog, settings: TableSettings, seed: int
) -> dict[str, list[Item]]:
    """Return all splits: those that are not given are taken from the rows for training."""
    side: dict[str, str] = {}
    for item in sorted(items, key=lambda item: SPLITS.index(item.row.split)):
        cluster, split = item.example.cluster, item.row.split
        if settings.columns.cluster and side.setdefault(cluster, split) != split:
            raise DataError(
                f"the cluster {cluster!r} is in two splits",
                got=f"{side[cluster]} and {split}",
                fix="give all its rows one split, or leave data.columns.cluster out",
            )
    given = {s: _drop_repeated([i for i in items if i.row.split == s], drops) for s in SPLITS}
    _refuse_empty("train", given["train"], drops)
    shares = {s: share for s, share in settings.shares.items() if s == "train" or not given[s]}
    if len(shares) == 1:
        return given
    total = sum(shares.values())
    taken = split_clusters(
        given["train"],
        name_cluster=lambda item: item.example.cluster,
        name_kind=lambda item: item.example.label or "",
        shares={split: share / total for split, share in shares.items()},
        seed=seed,
    )
    return {split: taken.get(split, given[split]) for split in SPLITS}


def _drop_repeated(items: Sequence[Item], drops: DropLog) -> list[Item]:
    """Return the first of the rows that ask the same, and none of those that disagree."""
    alike: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        alike[item.content].append(item)
    kept: list[Item] = []
    for same in alike.values():
        agree = len({item.example.label for item in same}) == 1
        kept += same[:1] if agree else []
        reason = "repeats another row" if agree else "same prompt as another row, other answer"
        for item in same[1:] if agree else same:
            drops.add(reason, f"{item.row.where} ({same[0].row.where})")
    return kept


def _refuse_empty(split: str, items: Sequence[Item], drops: DropLog) -> None:
    if not items:
        raise DataError(
            f"the split {split} is empty",
            got=drops.counts or None,
            fix="give it rows (data.files, data.splits) or a share (data.shares)",
        )
