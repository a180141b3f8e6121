"""Finds a user's rows in files, folders and data sets of the hub, each with the split it is of."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from groupwise.core import DataError
from groupwise.data.drops import DropLog
from groupwise.data.tables.files import SUFFIXES, read_table_rows
from groupwise.data.tables.settings import SPLITS, TableSettings

TEST_PART = re.compile(r"(?<![a-z])test(?![a-z])|测试", re.IGNORECASE)
"""Finds what publishers call their test part in the name of a file, folder or split."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row as it was found.

    Attributes:
        values: by column.
        where: file and line, for messages.
        source: file, or data set and split, it was counted under.
        file: name of the file without its suffix.
        folder: that the paths of pictures are relative to.
        split: that it is of as given.
        is_test_part: whether its file or split is called a test, whatever it is used for.
    """

    values: Mapping[str, Any]
    where: str
    source: str
    file: str
    folder: Path
    split: str
    is_test_part: bool


def read_source(settings: TableSettings, drops: DropLog) -> list[SourceRow]:
    """Return all rows that can be read; unreadable lines are dropped."""
    found = list(_read_hub(settings) if settings.hub else _read_files(settings, drops))
    if not found:
        places = settings.hub or ", ".join(f for files in settings.files.values() for f in files)
        raise DataError(f"{places} has no rows", got=drops.counts or None)
    return found


def _read_files(settings: TableSettings, drops: DropLog) -> Iterator[SourceRow]:
    for split, patterns in settings.files.items():
        for path in (path for pattern in patterns for path in _find_files(pattern)):
            is_test = any(TEST_PART.search(name) for name in (path.name, path.parent.name))
            for row in read_table_rows(path, drops, encoding=settings.encoding):
                yield SourceRow(
                    values=row.values,
                    where=row.where,
                    source=path.name,
                    file=path.name.partition(".")[0],
                    folder=path.parent,
                    split=split,
                    is_test_part=is_test,
                )


def _find_files(pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_dir():
        endings = (*SUFFIXES, *(f"{suffix}.gz" for suffix in SUFFIXES))
        found = [p for p in path.iterdir() if p.is_file() and p.name.lower().endswith(endings)]
    else:
        found = [path] if path.is_file() else [Path(name) for name in glob(pattern, recursive=True)]
    if not found:
        raise DataError(
            f"there is no table at {pattern}", expected=f"files with {', '.join(SUFFIXES)}"
        )
    return sorted(found)


def _read_hub(settings: TableSettings) -> Iterator[SourceRow]:
    """Yield the rows of a data set; pictures stay as their bytes or paths."""
    name = str(settings.hub)
    parts = open_dataset(name, subset=settings.subset, revision=settings.revision)
    used = {s: [p for p in parts if p in settings.splits.get(s, ())] for s in SPLITS}
    if not any(used.values()):
        raise DataError(
            f"{name} has no split that is used",
            got=", ".join(parts),
            expected=f"one of data.splits: {dict(settings.splits)}",
        )
    for split, part in ((ours, part) for ours in SPLITS for part in used[ours]):
        rows = parts[part].with_format("arrow")[:].to_pylist()
        for number, values in enumerate(rows, start=1):
            yield SourceRow(
                values=values,
                where=f"{name} {part} row {number}",
                source=f"{name} {part}",
                file=Path(name).name,
                folder=Path(name),
                split=split,
                is_test_part=bool(TEST_PART.search(part)),
            )


def open_dataset(
    name: str, *, subset: str | None = None, revision: str | None = None
) -> Mapping[str, Any]:
    """Return the splits of a data set of the hub, or of a folder with one."""
    datasets: Any = import_module("datasets")
    folder = Path(name)
    is_saved = (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()
    try:
        if is_saved:
            found = datasets.load_from_disk(name)
        else:
            found = datasets.load_dataset(name, subset, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"cannot read the data set {name} ({reason})",
            fix="download it first (hf download --repo-type dataset), or give a folder with it",
        ) from error
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {"train": found}
