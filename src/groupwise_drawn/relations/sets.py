"""Writes sets of drawn scenes, a picture, a depth picture and a row each, and reads them back."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Picture, derive_seed, read_jsonl, read_picture, write_jsonl
from groupwise_drawn.relations.pictures import draw_depth, draw_picture
from groupwise_drawn.relations.scenes import Scene, Thing, plan_pair
from groupwise_drawn.relations.vocabulary import LANGUAGES, SPLITS, STYLES, Split, Style

__all__ = ["ITEMS_NAME", "RelationItem", "plan_pairs", "read_relations", "write_relations"]

ITEMS_NAME = "items.jsonl"
_MAX_TRIES = 100


@dataclass(frozen=True, slots=True)
class RelationItem:
    """One scene with its caption.

    Attributes:
        id: ``<split>-<pair>-a`` or ``-b``; which of the two is true changes from pair to pair.
        partner: id of the scene in which the same caption has the other truth.
        pair: ``<split>-<pair>``, the same for both.
        split: which kinds of things meet differs between splits.
        style: of the picture.
        picture: of the scene.
        depth: the wall 0, the thing behind 128, the thing in front 255; of the same size.
        scene: what is drawn, with the boxes.
    """

    id: str
    partner: str
    pair: str
    split: Split
    style: Style
    picture: Picture
    depth: Picture
    scene: Scene


def plan_pairs(
    num_pairs: int, *, seed: int, split: Split, side: int = 128
) -> Iterator[tuple[Scene, Scene]]:
    """Yield that many different pairs; those of a smaller number are the first of a larger one."""
    seen: set[frozenset[Thing]] = set()
    for number in range(num_pairs):
        for attempt in range(_MAX_TRIES):
            pair = plan_pair(
                number, seed=derive_seed(seed, "attempt", attempt), split=split, side=side
            )
            key = frozenset((pair[0].subject, pair[0].other))
            if key not in seen:
                break
        else:
            raise DataError(f"there are no {num_pairs} different pairs for {split}", got=number)
        seen.add(key)
        yield pair


def write_relations(
    folder: Path, *, seed: int, num_pairs: Mapping[Split, int], style: Style, side: int = 128
) -> Path:
    """Write the scenes of a set and return its ``items.jsonl``.

    Pictures go to ``<split>/<pair>-<a or b>.png``, depth pictures to ``…-depth.png`` beside them.
    The rows are written last, so a folder with them is complete; the same arguments give the same
    bytes. Of one seed, both styles have the same scenes.
    """
    _check(num_pairs, style)
    rows = [
        row
        for split in SPLITS
        for number, pair in enumerate(
            plan_pairs(num_pairs.get(split, 0), seed=seed, split=split, side=side)
        )
        for row in _write_pair(folder, f"{split}-{number}", pair, split=split, style=style)
    ]
    write_jsonl(folder / ITEMS_NAME, rows)
    return folder / ITEMS_NAME


def read_relations(index: Path) -> list[RelationItem]:
    """Return the items that ``write_relations`` wrote, in its order."""
    rows = read_jsonl(index)
    try:
        return [_read_row(row, index.parent) for row in rows]
    except (KeyError, TypeError) as error:
        raise DataError(f"{index} is no file of drawn scenes: {error}") from error


def _check(num_pairs: Mapping[Split, int], style: str) -> None:
    unknown = sorted(set(num_pairs) - set(SPLITS))
    if unknown:
        raise DataError("unknown split", got=repr(unknown[0]), expected=" or ".join(SPLITS))
    if style not in STYLES:
        raise DataError("unknown style", got=repr(style), expected=" or ".join(STYLES))
    if min(num_pairs.values(), default=0) < 0 or not any(num_pairs.values()):
        raise DataError("a set needs pairs", got=dict(num_pairs), expected="at least 1")


def _write_pair(
    folder: Path, pair: str, scenes: tuple[Scene, Scene], *, split: Split, style: Style
) -> Iterator[dict[str, Any]]:
    names = (f"{pair}-a", f"{pair}-b")
    for name, partner, scene in zip(names, reversed(names), scenes, strict=True):
        stem = folder / split / name.removeprefix(f"{split}-")
        picture, depth = (
            stem.with_name(f"{stem.name}.png"),
            stem.with_name(f"{stem.name}-depth.png"),
        )
        picture.parent.mkdir(parents=True, exist_ok=True)
        draw_picture(scene, style=style).save(picture)
        draw_depth(scene).save(depth)
        yield {
            "id": name,
            "partner": partner,
            "pair": pair,
            "split": split,
            "style": style,
            "picture": picture.relative_to(folder).as_posix(),
            "depth": depth.relative_to(folder).as_posix(),
            "captions": {language: scene.write_caption(language) for language in LANGUAGES},
            "label": scene.label,
            "scene": asdict(scene),
        }


def _read_row(row: Mapping[str, Any], folder: Path) -> RelationItem:
    given: dict[str, Any] = row["scene"]
    for name in ("subject", "other"):
        thing: dict[str, Any] = {**given[name], "box": tuple(given[name]["box"])}
        given[name] = Thing(**thing)
    named = {name: row[name] for name in ("id", "partner", "pair", "split", "style")}
    return RelationItem(
        **named,
        picture=read_picture(folder / row["picture"]),
        depth=read_picture(folder / row["depth"]),
        scene=Scene(**given),
    )
