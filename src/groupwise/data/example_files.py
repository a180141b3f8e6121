"""Examples as JSONL files, with picture paths relative to the file's folder."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.core import (
    DataError,
    Example,
    Message,
    Picture,
    make_example,
    read_jsonl,
    split_opening,
    write_jsonl,
)


def write_examples(path: Path, examples: Sequence[Example]) -> None:
    """Replace ``path`` by one JSON row per example.

    Its ``pictures`` open the first user turn of its ``prompt``; a turn with other pictures has
    ``parts``, texts and pictures, instead of ``text``.
    """
    write_jsonl(path, (_to_row(example, path.parent) for example in examples))


def read_examples(path: Path) -> list[Example]:
    """Return the examples of a file that ``write_examples`` wrote.

    Raises:
        DataError: if the file is missing or a row is not an example.
    """
    return [_from_row(row, path, number) for number, row in enumerate(read_jsonl(path), start=1)]


def _to_row(example: Example, folder: Path) -> dict[str, Any]:
    opening, prompt = split_opening(example.prompt)
    return {
        "id": example.id,
        "cluster": example.cluster,
        "label": example.label,
        "prompt": [_write_turn(message, folder) for message in prompt],
        "pictures": [_write_picture(picture, folder) for picture in opening],
        "fields": dict(example.fields),
    }


def _write_turn(message: Message, folder: Path) -> dict[str, Any]:
    if not message.pictures:
        return {"role": message.role, "text": message.text}
    parts = [p if isinstance(p, str) else _write_picture(p, folder) for p in message.parts]
    return {"role": message.role, "parts": parts}


def _write_picture(picture: Picture, folder: Path) -> dict[str, str]:
    path = Path(os.path.relpath(picture.path, folder)).as_posix()
    return {"path": path, "digest": picture.digest}


def _from_row(row: dict[str, Any], path: Path, number: int) -> Example:
    folder = path.parent
    try:
        example = make_example(
            [_read_turn(turn, folder) for turn in row["prompt"]],
            cluster=row["cluster"],
            pictures=[_read_picture(picture, folder) for picture in row["pictures"]],
            label=row["label"],
            fields=row["fields"],
        )
        return replace(example, id=row["id"])
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{path} row {number} is not an example",
            got=repr(error),
            fix="run again what wrote it, if that was another version",
        ) from error


def _read_turn(turn: dict[str, Any], folder: Path) -> Message:
    parts = turn["parts"] if "parts" in turn else [turn["text"]]
    return Message(
        turn["role"], [p if isinstance(p, str) else _read_picture(p, folder) for p in parts]
    )


def _read_picture(picture: dict[str, str], folder: Path) -> Picture:
    return Picture(folder / picture["path"], picture["digest"])
