"""Brings a public set from the hub into a folder that ``load_problems`` reads."""

from collections.abc import Iterator
from pathlib import Path

from groupwise.core import DataError, write_jsonl
from groupwise.data.problems.sets import PUBLISHED_SETS, SetName
from groupwise.data.tables.sources import open_dataset
from groupwise.data.tables.values import clean_value


def fetch_problems(name: SetName, folder: Path) -> Iterator[tuple[Path, int]]:
    """Write each part of a set as a JSONL file of its rows; yield the file and its rows' number.

    Args:
        name: of the set.
        folder: the files are in ``folder/<name>``, and in ``<subset>`` there if it has several.

    Raises:
        DataError: if the hub cannot be reached, or has no such set.
    """
    form = PUBLISHED_SETS[name]
    for subset in form.subsets:
        place = folder / name / (subset or "" if len(form.subsets) > 1 else "")
        try:
            parts = open_dataset(form.hub, subset=subset)
        except DataError as error:
            reason = " ".join(str(error.__cause__).split())
            raise DataError(
                f"cannot fetch {name} from the hub ({reason})",
                fix=f"go online, or put its published files into {place}",
            ) from error
        place.mkdir(parents=True, exist_ok=True)
        for part, rows in parts.items():
            path = place / f"{part}.jsonl"
            values = rows.with_format("arrow")[:].to_pylist()
            write_jsonl(path, (clean_value(row) for row in values))
            yield path, len(values)
