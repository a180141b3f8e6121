"""Examples as JSONL files, and the log of the rows that did not become any."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

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


class Drop(NamedTuple):
    """One row that was not used: one of few fixed reasons, and which row it is with its fault."""

    reason: str
    where: str


@dataclass
class DropLog:
    """Collects dropped rows, in the order in which they were met; it decides nothing itself."""

    rows: list[Drop] = field(default_factory=list[Drop])

    def add(self, reason: str, where: str) -> None:
        """Record one dropped row."""
        self.rows.append(Drop(reason, where))

    @property
    def counts(self) -> dict[str, int]:
        """Number of dropped rows by reason, the most frequent first."""
        counts = Counter(drop.reason for drop in self.rows)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def total(self) -> int:
        """Number of dropped rows."""
        return len(self.rows)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the log that ``to_json`` gave the values of."""
        return cls([Drop(row["reason"], row["where"]) for row in values["rows"]])

    def to_json(self) -> dict[str, Any]:
        """Return total, counts and all rows as JSON values."""
        rows = [drop._asdict() for drop in self.rows]
        return {"total": self.total, "counts": self.counts, "rows": rows}


def write_examples(path: Path, examples: Sequence[Example]) -> None:
    """Replace ``path`` by one JSON row per example; paths of pictures are relative to its folder.

    Its ``pictures`` open the first user turn of its ``prompt``; a turn with other pictures has
    ``parts``, texts and pictures, instead of ``text``.
    """

    def write_part(part: str | Picture) -> Any:
        if isinstance(part, str):
            return part
        place = Path(os.path.relpath(part.path, path.parent)).as_posix()
        return {"path": place, "digest": part.digest}

    def write_turn(turn: Message) -> dict[str, Any]:
        parts = [write_part(part) for part in turn.parts]
        return {"role": turn.role, **({"parts": parts} if turn.pictures else {"text": turn.text})}

    def write(example: Example) -> dict[str, Any]:
        opening, prompt = split_opening(example.prompt)
        return {
            "id": example.id,
            "cluster": example.cluster,
            "label": example.label,
            "prompt": list(map(write_turn, prompt)),
            "pictures": list(map(write_part, opening)),
            "fields": dict(example.fields),
        }

    write_jsonl(path, map(write, examples))


def read_examples(path: Path) -> list[Example]:
    """Return the examples of a file that ``write_examples`` wrote.

    Raises:
        DataError: if the file is missing or a row is not an example.
    """

    def read_picture(row: dict[str, str]) -> Picture:
        return Picture(path.parent / row["path"], row["digest"])

    def read_turn(turn: dict[str, Any]) -> Message:
        parts = turn["parts"] if "parts" in turn else [turn["text"]]
        return Message(turn["role"], [p if isinstance(p, str) else read_picture(p) for p in parts])

    examples: list[Example] = []
    for number, row in enumerate(read_jsonl(path), start=1):
        try:
            example = make_example(
                list(map(read_turn, row["prompt"])),
                cluster=row["cluster"],
                pictures=[read_picture(picture) for picture in row["pictures"]],
                label=row["label"],
                fields=row["fields"],
            )
            examples.append(replace(example, id=row["id"]))
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{path} row {number} is not an example",
                got=repr(error),
                fix="run again what wrote it, if that was another version",
            ) from error
    return examples


def read_splits(folder: Path, *names: str) -> dict[str, list[Example]]:
    """Return the examples of splits from the folder of the data stage."""
    return {name: read_examples(folder / f"{name}.jsonl") for name in names}
