"""Writes the items of a world, a picture and a row each, and reads them back."""

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from groupwise.core import (
    DataError,
    Picture,
    derive_seed,
    digest_bytes,
    read_jsonl,
    read_picture,
    write_jsonl,
)
from groupwise_drawn.dialects.scenes import Scene, draw_scene, plan_scene
from groupwise_drawn.dialects.vocabulary import DIALECTS, QUERY_SPLITS, SPLITS, WORDINGS, Split
from groupwise_drawn.dialects.words import Dictionary, draw_dictionary

__all__ = ["ITEMS_NAME", "DialectItem", "read_dialects", "write_dialects"]

ITEMS_NAME = "items.jsonl"
_NUM_ANNOTATORS = 10


@dataclass(frozen=True, slots=True)
class DialectItem:
    """A picture, a question and its answers.

    Attributes:
        id: ``<split>-<number>``.
        split: ``train`` (demonstrations), or ``anchors``, ``validation`` or ``test`` (queries).
        picture: a scene.
        question: asks for the colour of its object.
        answers: of ten annotators, all the same: the word of the time it was recorded.
        dialect: of the question.
        wording: which of ``WORDINGS`` asks.
        scene: what is drawn.
    """

    id: str
    split: Split
    picture: Picture
    question: str
    answers: tuple[str, ...]
    dialect: str
    wording: int
    scene: Scene

    @property
    def answer(self) -> str:
        """The word that all annotators gave."""
        return self.answers[0]


def write_dialects(
    folder: Path,
    *,
    seed: int,
    sizes: Mapping[Split, int],
    revised_share: float = 0.5,
    former_share: float = 0.5,
) -> Path:
    """Write the items of a world and return its ``items.jsonl``.

    Pictures go to ``<split>/<number>.png``. The rows are written last, so a folder with them is
    complete; the same arguments give the same bytes. No two items, of whatever splits, have the
    same picture and question.

    Args:
        folder: made if it is missing.
        seed: decides the words of the world and its items.
        sizes: number of items by split; a split that is not named has none.
        revised_share: in [0, 1]: chance of a dialect's word for a colour to have been revised.
        former_share: in [0, 1]: chance of a demonstration to have been recorded before that; it
            bears no stamp. Queries were all recorded since.
    """
    _check(sizes, former_share)
    dictionary = draw_dictionary(seed=seed, revised_share=revised_share)
    seen: set[str] = set()
    rows = [
        _write_item(
            folder, split, number, dictionary=dictionary, seed=seed, former=former_share, seen=seen
        )
        for split in SPLITS
        for number in range(sizes.get(split, 0))
    ]
    write_jsonl(folder / ITEMS_NAME, rows)
    return folder / ITEMS_NAME


def _check(sizes: Mapping[Split, int], former_share: float) -> None:
    unknown = sorted(set(sizes) - set(SPLITS))
    if unknown:
        raise DataError("unknown split", got=repr(unknown[0]), expected=" or ".join(SPLITS))
    if min(sizes.values(), default=0) < 0 or not any(sizes.values()):
        raise DataError("a world needs items", got=dict(sizes), expected="at least 1")
    if not 0.0 <= former_share <= 1.0:
        raise DataError("former_share is out of range", got=former_share, expected="from 0 to 1")


def _write_item(
    folder: Path,
    split: Split,
    number: int,
    *,
    dictionary: Dictionary,
    seed: int,
    former: float,
    seen: set[str],
) -> dict[str, Any]:
    rng = random.Random(derive_seed(seed, "item", split, number))
    while True:  # the same scene, shades and places included, is rare and drawn again
        scene = plan_scene(rng, stamped=split in QUERY_SPLITS or rng.random() >= former)
        dialect, wording = rng.choice(DIALECTS), rng.randrange(len(WORDINGS))
        file = BytesIO()
        draw_scene(scene, rng=rng).save(file, "PNG")
        key = f"{digest_bytes(file.getvalue())} {dialect} {wording}"
        if key not in seen:
            seen.add(key)
            break
    path = folder / split / f"{number}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.getvalue())
    words = dictionary.words if scene.stamped else dictionary.former
    return {
        "id": f"{split}-{number}",
        "split": split,
        "picture": path.relative_to(folder).as_posix(),
        "question": WORDINGS[wording].format(dialect),
        "answers": [words[dialect, scene.color]] * _NUM_ANNOTATORS,
        "dialect": dialect,
        "wording": wording,
        "scene": asdict(scene),
    }


def read_dialects(index: Path) -> list[DialectItem]:
    """Return the items that ``write_dialects`` wrote, in its order."""
    rows = read_jsonl(index)
    try:
        return [_read_row(row, index.parent) for row in rows]
    except (KeyError, TypeError) as error:
        raise DataError(f"{index} is no file of items: {error}") from error


def _read_row(row: Mapping[str, Any], folder: Path) -> DialectItem:
    read: dict[str, Any] = {
        "picture": read_picture(folder / row["picture"]),
        "answers": tuple(row["answers"]),
        "scene": Scene(**row["scene"]),
    }
    return DialectItem(**{**row, **read})
