"""Examples as JSONL files, with picture paths relative to the file's folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Example, Message, Picture, read_jsonl, write_jsonl


def write_examples(path: Path, examples: Sequence[Example]) -> None:
    """Replace ``path`` by one JSON row per example."""
    write_jsonl(path, (_to_row(example, path.parent) for example in examples))


def read_examples(path: Path) -> list[Example]:
    """Return the examples of a file that ``write_examples`` wrote.

    Raises:
        DataError: if the file is missing or a row is not an example.
    """
    return [_from_row(row, path, number) for number, row in enumerate(read_jsonl(path), start=1)]


def _to_row(example: Example, folder: Path) -> dict[str, Any]:
    return {
        "id": example.id,
        "group": example.group,
        "label": example.label,
        "prompt": [{"role": message.role, "text": message.text} for message in example.prompt],
        "pictures": [
            {
                "path": Path(os.path.relpath(picture.path, folder)).as_posix(),
                "digest": picture.digest,
            }
            for picture in example.pictures
        ],
        "fields": dict(example.fields),
    }


def _from_row(row: dict[str, Any], path: Path, number: int) -> Example:
    try:
        pictures = [Picture(path.parent / p["path"], p["digest"]) for p in row["pictures"]]
        return Example(
            id=row["id"],
            prompt=tuple(Message(m["role"], m["text"]) for m in row["prompt"]),
            pictures=tuple(pictures),
            label=row["label"],
            group=row["group"],
            fields=row["fields"],
        )
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} row {number} is not an example", got=repr(error)) from error
